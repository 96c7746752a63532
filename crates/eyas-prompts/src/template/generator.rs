//! Filters that yield generators in jinja2: they can be run through once, are always true, have no length and cannot be printed as JSON.
//! Templates that need a list write `| list`; a list given too freely would hide that a template fails everywhere else.

use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, State};

macro_rules! generators {
    ($environment:ident: $($name:literal => $filter:path),* $(,)?) => {
        $(
            // The engine's own filter stays under a name that no template can spell.
            $environment.add_filter(concat!("<", $name, ">"), $filter);
            $environment.add_filter($name, |state: &mut State, args: Rest<ValueOrKwargs>| {
                one_shot(state, concat!("<", $name, ">"), args)
            });
        )*
    };
}

pub(super) fn add(environment: &mut Environment<'_>) {
    use minijinja::filters::{batch, map, reject, rejectattr, select, selectattr, slice, unique};
    generators!(environment:
        "map" => map,
        "select" => select,
        "selectattr" => selectattr,
        "reject" => reject,
        "rejectattr" => rejectattr,
        "unique" => unique,
        "batch" => batch,
        "slice" => slice,
    );
}

fn one_shot(state: &mut State, filter: &str, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
    let items: Vec<Value> = state.apply_filter(filter, &args)?.try_iter()?.collect();
    Ok(Value::make_one_shot_iterator(items.into_iter()))
}
