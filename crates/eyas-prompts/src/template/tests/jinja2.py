# Makes jinja2.json: what jinja2 3.1.6 (Python 3.11), set up as transformers sets it up, renders for one snippet after the other.
import jinja2, json
from jinja2.sandbox import ImmutableSandboxedEnvironment
import jinja2.ext
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
env.filters['tojson']=tojson
def rx(m): raise jinja2.exceptions.TemplateError(m)
env.globals['raise_exception']=rx
S = r'''
{{ none }}|{{ true }}|{{ false }}|{{ 1 }}|{{ 1.0 }}|{{ 1e20 }}|{{ 1.5e-7 }}|{{ 123456789012345678 }}|{{ 0.1 + 0.2 }}
{{ [1, 'a', none, true, 1.5, "it's", 'q"q', 'n\nl'] }}
{{ {'a': 1, 'b': {'c': [none]}} }}
{{ (1,) }}|{{ (1, 'x') }}|{{ () }}|{{ [] }}|{{ {} }}
{{ 'a' ~ none ~ true ~ 1.0 ~ [1] ~ {'k': 'v'} }}
{{ undefined_thing }}|{{ undefined_thing is defined }}|{{ undefined_thing | default('d') }}|{{ none | default('d') }}|{{ '' | default('d', true) }}
{{ d.missing }}|{{ d.a }}|{{ d['a'] }}|{{ d.get('zz') }}|{{ d.get('zz', 'dd') }}|{{ d.get('a') }}
{{ none.foo is defined }}|{{ 'str'.foo is defined }}|{{ 1 .foo is defined }}
{{ undefined_thing.foo }}
{{ 'a' + undefined_thing }}
{{ 'a' + none }}
{{ 'a' + 1 }}
{{ undefined_thing | length }}|{{ undefined_thing | list }}|{{ undefined_thing | join(',') }}|{{ undefined_thing | string }}|{{ undefined_thing | trim }}
{{ 'abc' is sequence }}|{{ d is sequence }}|{{ [] is sequence }}|{{ 1 is sequence }}|{{ none is sequence }}|{{ undefined_thing is sequence }}
{{ 'abc' is iterable }}|{{ d is iterable }}|{{ 1 is iterable }}|{{ none is iterable }}|{{ undefined_thing is iterable }}
{{ d is mapping }}|{{ [] is mapping }}|{{ 'x' is string }}|{{ 1 is number }}|{{ true is number }}|{{ true is integer }}|{{ 1.0 is integer }}|{{ 1.0 is float }}|{{ true is boolean }}
{{ 0 is false }}|{{ false is false }}|{{ 'false' is false }}|{{ none is none }}|{{ 1 is true }}|{{ 1 == true }}|{{ 1 == 1.0 }}|{{ '1' == 1 }}
{{ 'x' in 'xyz' }}|{{ 'k' in d }}|{{ 'a' in d }}|{{ 1 in [1,2] }}|{{ 1 not in [1,2] }}
{{ 'x' in none }}
{{ 'x' in undefined_thing }}
{{ ' a b  c '.split() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a b c '.split(none, 1) }}|{{ ''.split(',') }}|{{ ''.split() }}
{{ 'a,b,c'.rsplit(',', 1) }}|{{ ' a b c '.rsplit(none, 1) }}|{{ 'a-b'.partition('-') }}|{{ 'ab'.partition('-') }}|{{ 'a-b-c'.rpartition('-') }}
{{ 'xxabxx'.strip('x') }}|{{ 'xxabxx'.lstrip('x') }}|{{ 'xxabxx'.rstrip('x') }}|{{ '\n a \t'.strip() }}|{{ 'ab'.strip('') }}
{{ 'hello world'.title() }}|{{ "it's a-b c".title() }}|{{ 'hELLO wORLD'.capitalize() }}|{{ 'Ab'.swapcase() }}|{{ 'ß'.upper() }}|{{ 'İ'.lower() | length }}
{{ 'hello world' | title }}|{{ "they're bill's" | title }}|{{ 'hELLO' | capitalize }}|{{ 'abc' | upper }}|{{ 'ABC' | lower }}
{{ 'a\nb\r\nc'.splitlines() }}|{{ 'a\nb\n'.splitlines(true) }}
{{ 'abcabc'.replace('b', 'X') }}|{{ 'abcabc'.replace('b', 'X', 1) }}|{{ 'abcabc' | replace('b', 'X') }}|{{ 'abcabc' | replace('b', 'X', 1) }}|{{ 'ab'.replace('', '-') }}
{{ 'abc'.find('c') }}|{{ 'abc'.find('z') }}|{{ 'éb'.find('b') }}|{{ 'abcb'.rfind('b') }}|{{ 'abcb'.count('b') }}|{{ 'abc'.index('b') }}
{{ 'abc'.startswith('a') }}|{{ 'abc'.startswith(('x', 'a')) }}|{{ 'abc'.endswith('c') }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}
{{ 'x'.zfill(3) }}|{{ '-5'.zfill(4) }}|{{ 'a'.center(4) }}|{{ 'a'.center(5, '*') }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3) }}
{{ '{} {}'.format(1, 'a') }}|{{ '{0} {x}'.format(1, x=2) }}|{{ '%s-%d' % ('a', 3) }}|{{ '%s' | format('z') }}|{{ '%.2f' % 1.234 }}
{{ '-'.join(['a', 'b']) }}|{{ ['a', 1, none] | join('-') }}|{{ [d, d] | join(',', attribute='a') }}
{{ d.items() | list }}|{{ d.keys() | list }}|{{ d.values() | list }}|{{ d | items | list }}|{{ d | dictsort }}
{{ {'B': 1, 'a': 2} | dictsort }}|{{ {'B': 1, 'a': 2} | dictsort(true) }}|{{ {'b': 1, 'a': 2} | dictsort(by='value') }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }};{% endfor %}
{{ d | tojson }}|{{ d | tojson(indent=2) }}
{{ [1, none, true, 'é<&>"\'', 1.0, 1e16, 1e-5, 1.5] | tojson }}|{{ 'é😀\x01\x7f' | tojson(ensure_ascii=true) }}|{{ 'é😀\x01\x7f' | tojson }}
{{ {'b': 1, 'a': [1, {}], 'c': []} | tojson(separators=(',', ':'), sort_keys=true) }}|{{ {'b': 1, 'a': [1, {}], 'c': []} | tojson(indent=1) }}
{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ undefined_thing | tojson }}
{{ [1,2] | map('string') | tojson }}
{{ d.items() | tojson }}
{{ [1,2,3][1:] }}|{{ [1,2,3][::-1] }}|{{ [1,2,3][-1] }}|{{ 'abc'[::-1] }}|{{ 'abc'[-2:] }}|{{ [1,2,3][:-1] }}|{{ 'abc'[0] }}|{{ [1,2,3][5] is defined }}|{{ (1,2,3)[1:] }}
{{ [1,2] + [3] }}|{{ ([1,2] + [3]) | tojson }}|{{ ([1,2] + [3])[2] }}|{{ ([1]+[2]) | length }}|{{ ([1] + [2]) is sequence }}
{{ 'ab' * 2 }}|{{ [1] * 2 }}|{{ 7 // 2 }}|{{ 7 / 2 }}|{{ 6 / 2 }}|{{ 7 % 3 }}|{{ 2 ** 3 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 2 ** -1 }}
{{ 1 < 2 < 3 }}|{{ 'a' < 'b' }}|{{ not true }}|{{ 1 and 2 }}|{{ 0 or 'x' }}|{{ none or 'y' }}|{{ '' and 1 }}
{{ 'yes' if d.a else 'no' }}|{{ 'yes' if false }}|{{ ('yes' if false) is defined }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1,2,3] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}
{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}
{% for i in [1,2,3,4] %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }};{% endfor %}
{% for i in [1,2,3] if i > 1 %}{{ i }}{{ loop.index }}{{ loop.length }}{% else %}none{% endfor %}|{% for i in [] %}{% else %}empty{% endfor %}
{% for i in [1,2,3] %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}|{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}|{% for i in [1,2,3] %}{{ loop.cycle('a','b') }}{% endfor %}
{% macro m(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{{ caller is defined }}{% endmacro %}{{ m(1) }}|{{ m(1, c=2) }}|{{ m() }}
{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{% endcall %}
{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(3) }}
{% set later = 'L' %}{% macro useglobal() %}{{ later }}{{ later2 }}{% endmacro %}{% set later2 = 'M' %}{{ useglobal() }}
{% macro va(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ va(1, 2, z=3) }}
{% set cap %}captured {{ 1 + 1 }}{% endset %}[{{ cap }}]|{% filter upper %}abc{% endfilter %}|{% set cap | upper %}x{% endset %}{{ cap }}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}
{{ msgs | selectattr('role', 'equalto', 'user') | list | length }}|{{ msgs | rejectattr('role', 'equalto', 'user') | map(attribute='content') | list }}|{{ msgs | map(attribute='zz', default='dd') | join(',') }}
{{ 'T' if msgs | selectattr('role', 'equalto', 'nobody') else 'F' }}
{{ [3,1,2] | sort }}|{{ [3,1,2] | sort(reverse=true) }}|{{ ['b','A'] | sort }}|{{ msgs | sort(attribute='content') | map(attribute='content') | join }}
{{ [1,2,3] | first }}|{{ [1,2,3] | last }}|{{ [] | first is defined }}|{{ [1,2,3] | sum }}|{{ [1,2,3] | max }}|{{ [1,2,3] | min }}|{{ 'abc' | first }}|{{ 'abc' | last }}
{{ [1,2,3] | reverse | list }}|{{ 'abc' | reverse }}|{{ [1,1,2] | unique | list }}|{{ [1,2,3] | batch(2) | list }}|{{ 'abc' | list }}
{{ '3' | int }}|{{ 'x' | int }}|{{ 'x' | int(7) }}|{{ '3.7' | float }}|{{ 3.7 | int }}|{{ 3.14159 | round(2) }}|{{ 2.5 | round }}|{{ -3 | abs }}
{{ 'a\nb' | indent }}|{{ 'a\nb\n\nc' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}
{{ '  x ' | trim }}|{{ 'xax' | trim('x') }}|{{ 1 | string + 'a' }}|{{ true | string }}|{{ none | string }}
{{ '<a>&"' | e }}|{{ '<a>' | safe }}|{{ '<a>' | escape }}
{{ range(3) | list }}|{{ range(1, 6, 2) | list }}|{{ dict(a=1) }}|{{ range(3) }}
a{# c #}b{%- if true -%} x {%- endif -%} c
  {% if true %}
  x
  {% endif %}
y{{ 'q' }}
z
{% raw %}{{ x }}{% endraw %}|{{ '{{' }}|{{ "a" "b" }}
{{ 'a\'b' }}|{{ "tab\tq" }}|{{ 'u\u00e9' }}|{{ '\\n' }}|{{ '\d' }}|{{ '\x41' }}|{{ '\N{BULLET}' }}
{{ 'é'|length }}|{{ '😀'|length }}|{{ '😀x'[1] }}
{% if undefined_thing %}a{% elif none %}b{% elif [] %}c{% elif {} %}d{% elif '' %}e{% elif 0 %}f{% elif 0.0 %}g{% else %}h{% endif %}
{{ raise_exception('no way') }}
{{ l.append(1) }}
{{ d.update({'x': 1}) }}
{{ foo() }}
{{ 1 | nosuch }}
{{ 1 if true else (1 | nosuch) }}
{% if false %}{{ 1 | nosuch }}{% endif %}ok
{{ d.items }}
{{ d.a.b.c }}
{{ {'items': 1}.items is callable }}
{{ {'items': 1}['items'] }}|{{ {'get': 2}['get'] }}
{{ 5 is odd }}|{{ 4 is even }}|{{ 6 is divisibleby 3 }}|{{ 'a' is lower }}|{{ 'A' is upper }}|{{ 1 is eq 1 }}|{{ 1 is ne 2 }}|{{ 2 is gt 1 }}|{{ 1 is in [1] }}|{{ none is sameas none }}
{{ 'x' is not none and 'x' is string }}|{{ not 'x' is none }}|{{ d.a is defined and d.a == 1 }}
{{ [[1,2],[3,4]] | map('first') | list }}|{{ [[1,2],[3]] | map('length') | sum }}|{{ [1,2] | select('odd') | list }}|{{ ['a',''] | select | list }}|{{ [1,2,3]|reject('odd')|list }}
{{ 10000000000000000000000 }}|{{ 1_000 }}|{{ 0x1f }}
{{ d is eq({'a': 1, 'b': 'two', 'c': [1, none]}) }}|{{ [1,2] == [1,2] }}|{{ (1,2) == [1,2] }}|{{ {'a':1} == {'a':1.0} }}
{{ msgs[0].role }}|{{ msgs[-1]['content'] }}|{{ msgs[0]['nope'] }}|{{ (msgs | last).content }}|{{ msgs[1:] | length }}|{{ msgs[9:] }}
{{ messages }}|{{ tools is none }}|{{ documents is none }}|{{ tools is defined }}
{{ "%s" % d }}|{{ "{}".format(none) }}|{{ 'x' ~ undefined_thing ~ 'y' }}
{%- set content = 'a</think>b' -%}{{ content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}|{{ (content.split('</think>')|last).lstrip('\n') }}
{{ 'A' if 'a' is defined and not (1 == 2 or false) else 'B' }}|{{ 1 if 2 > 1 and 3 >= 3 and 1 != 2 else 0 }}
{% for c in 'ab' %}{{ c }}.{% endfor %}|{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %}|{% for x in [3] recursive %}{{ x }}{% endfor %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set (c, e) = (3, 4) %}{{ c }}{{ e }}
{{ [1, 2, 3] | join }}|{{ 'abc' | join('-') }}|{{ d | join(',') }}|{{ d | list }}|{{ d | length }}|{{ d | count }}
{{ '' is string and '' is not none }}|{{ 'abc' | select('in', 'ab') | list }}
{{ 'a b' | wordcount }}
{{ 'abc' | truncate(2) }}
{{ 'Hello' | center(9) }}
{{ d | xmlattr }}
{{ 'a'.encode('utf8') }}
{{ 1.23e5 }}|{{ 100000.0 }}|{{ 12345678.9 }}|{{ 1e15 }}|{{ 1e16 }}|{{ 1.0e-4 }}|{{ 5e-324 }}|{{ -0.0 }}
{{ d['a'] | string | length }}|{{ (d.c | length) > 1 }}|{{ d.c[1] is none }}|{{ d.c[7] is undefined }}
{{ 'a' in ['a'] and 'b' not in ['a'] }}|{{ not ('a' in 'b') }}|{{ ('role' in msgs[0]) }}|{{ 'x' in msgs }}
'''.strip('\n').split('\n')
# join multi-line snippet
S2=[];i=0
while i<len(S):
    if S[i]=='a{# c #}b{%- if true -%} x {%- endif -%} c':
        S2.append(S[i]); S2.append('\n'.join(S[i+1:i+6])); i+=6; continue
    S2.append(S[i]); i+=1
ctx=dict(d={'a':1,'b':'two','c':[1,None]}, l=[1], msgs=[{'role':'user','content':'b'},{'role':'assistant','content':'a'}], messages=[], tools=None, documents=None)
out=[]
for s in S2:
    try: r=env.from_string(s).render(**ctx); out.append([s,r])
    except Exception as e: out.append([s,{'error':type(e).__name__+': '+str(e)}])
json.dump({'context':ctx,'snippets':out},open('jinja2.json', 'w'),ensure_ascii=False,indent=0)
for s,r in out:
    if not isinstance(r,str): print(s,r)
print(len(out))
