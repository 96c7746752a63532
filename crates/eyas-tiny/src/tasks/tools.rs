//! Function calls as JSON.

use serde_json::{Map, Value, json};

use super::lists::CITIES;
use super::{Answer, Task, fill};
use crate::rng::Rng;

/// Where an argument's value comes from.
#[derive(Clone, Copy)]
enum Source {
    City,
    Day,
    Currency,
    Language,
    Word,
    Number,
}

struct Spec {
    name: &'static str,
    description: &'static str,
    parameters: &'static [(&'static str, Source)],
    /// Requests; their `{}` take the values in the order of the parameters.
    phrases: &'static [&'static str],
}

const SPECS: &[Spec] = &[
    Spec {
        name: "get_weather",
        description: "Weather of a city",
        parameters: &[("city", Source::City), ("day", Source::Day)],
        phrases: &[
            "What is the weather in {} on {}?",
            "Will it rain in {} on {}?",
            "Tell me the weather of {} for {}.",
        ],
    },
    Spec {
        name: "get_time",
        description: "Local time of a city",
        parameters: &[("city", Source::City)],
        phrases: &["What time is it in {}?", "Tell me the time in {}.", "How late is it in {} now?"],
    },
    Spec {
        name: "find_train",
        description: "Trains between two cities",
        parameters: &[("from", Source::City), ("to", Source::City), ("day", Source::Day)],
        phrases: &["Find a train from {} to {} on {}.", "I want to go from {} to {} on {} by train."],
    },
    Spec {
        name: "book_hotel",
        description: "Book a room",
        parameters: &[("city", Source::City), ("nights", Source::Number)],
        phrases: &["Book a hotel in {} for {} nights.", "I need a room in {} for {} nights."],
    },
    Spec {
        name: "exchange",
        description: "Change money",
        parameters: &[("amount", Source::Number), ("from", Source::Currency), ("to", Source::Currency)],
        phrases: &["Change {} {} into {}.", "How much is {} {} in {}?", "Exchange {} {} for {}."],
    },
    Spec {
        name: "translate",
        description: "Translate a word",
        parameters: &[("word", Source::Word), ("language", Source::Language)],
        phrases: &["Translate {} into {}.", "How do you say {} in {}?", "What is {} in {}?"],
    },
    Spec {
        name: "set_timer",
        description: "Start a timer",
        parameters: &[("minutes", Source::Number)],
        phrases: &["Set a timer for {} minutes.", "Wake me in {} minutes.", "Start a timer of {} minutes."],
    },
    Spec {
        name: "add_event",
        description: "Put an event into the calendar",
        parameters: &[("title", Source::Word), ("day", Source::Day)],
        phrases: &["Add {} to my calendar on {}.", "Plan {} for {}.", "Put {} on {} into my calendar."],
    },
];

const DAYS: &[&str] = &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const CURRENCIES: &[&str] = &["dollars", "euros", "francs", "pesos", "pounds", "rupees", "yen"];
const LANGUAGES: &[&str] =
    &["Arabic", "Danish", "French", "German", "Greek", "Hindi", "Italian", "Korean", "Polish", "Spanish"];
const WORDS: &[&str] = &[
    "bread", "cheese", "chess", "cinema", "coffee", "dance", "dinner", "football", "garden", "lunch", "music", "river",
    "school", "singing", "sunshine", "swimming", "tennis", "theatre", "water", "yoga",
];

impl Spec {
    /// The declaration in OpenAI form.
    fn declaration(&self) -> Value {
        let properties: Map<String, Value> = self
            .parameters
            .iter()
            .map(|(name, source)| {
                let kind = if matches!(source, Source::Number) { "integer" } else { "string" };
                ((*name).to_owned(), json!({"type": kind}))
            })
            .collect();
        let required: Vec<&str> = self.parameters.iter().map(|(name, _)| *name).collect();
        json!({"type": "function", "function": {
            "name": self.name,
            "description": self.description,
            "parameters": {"type": "object", "properties": properties, "required": required},
        }})
    }
}

fn draw(rng: &mut Rng, source: Source) -> Value {
    match source {
        Source::City => json!(rng.pick(CITIES)),
        Source::Day => json!(rng.pick(DAYS)),
        Source::Currency => json!(rng.pick(CURRENCIES)),
        Source::Language => json!(rng.pick(LANGUAGES)),
        Source::Word => json!(rng.pick(WORDS)),
        Source::Number => json!(rng.between(2, 90)),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A request that one of the declared tools answers.
pub fn tool(rng: &mut Rng) -> Task {
    let chosen = rng.below(SPECS.len());
    let n_tools = rng.long_tailed(1, 4, 0.5);
    let mut declared: Vec<usize> = (0..SPECS.len()).filter(|i| *i != chosen).collect();
    rng.shuffle(&mut declared);
    declared.truncate(n_tools - 1);
    declared.push(chosen);
    rng.shuffle(&mut declared);

    let spec = &SPECS[chosen];
    let mut arguments = Map::new();
    let mut lines = vec![format!("The tool is {}.", spec.name)];
    let mut values: Vec<String> = Vec::new();
    for (name, source) in spec.parameters {
        let mut value = draw(rng, *source);
        while values.contains(&shown(&value)) {
            value = draw(rng, *source);
        }
        values.push(shown(&value));
        lines.push(format!("{name}: {}", shown(&value)));
        arguments.insert((*name).to_owned(), value);
    }
    let borrowed: Vec<&str> = values.iter().map(String::as_str).collect();
    Task {
        user: fill(rng.pick(spec.phrases), &borrowed),
        tools: declared.into_iter().map(|i| SPECS[i].declaration()).collect(),
        thinking: lines.join("\n"),
        answer: Answer::ToolCall { name: spec.name.to_owned(), arguments: Value::Object(arguments) },
    }
}
