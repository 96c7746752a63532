//! Look-ups: tables, chains, the calendar.

use super::{Task, fill};
use crate::rng::Rng;

pub(crate) const CITIES: &[&str] = &[
    "Athens", "Berlin", "Boston", "Cairo", "Delhi", "Dublin", "Geneva", "Havana", "Kyoto", "Lagos", "Lima", "Lisbon",
    "London", "Madrid", "Milan", "Moscow", "Nairobi", "Oslo", "Paris", "Prague", "Quito", "Rome", "Seoul", "Sydney",
    "Tokyo", "Tunis", "Vienna", "Warsaw",
];
const ANIMALS: &[&str] = &[
    "ant", "ape", "bat", "bear", "bee", "bird", "boar", "camel", "cat", "cow", "crab", "crow", "deer", "dog", "dove",
    "duck", "eagle", "eel", "elk", "fish", "fly", "fox", "frog", "goat", "goose", "hare", "hawk", "hen", "horse",
    "lamb", "lion", "mole", "moth", "mouse", "mule", "otter", "owl", "ox", "pig", "pony", "rat", "seal", "shark",
    "sheep", "snail", "snake", "swan", "tiger", "toad", "wasp", "whale", "wolf", "worm", "zebra",
];
const JOBS: &[&str] = &[
    "baker", "cook", "driver", "farmer", "judge", "nurse", "painter", "pilot", "singer", "tailor", "teacher", "writer",
];
const COLORS: &[&str] =
    &["amber", "black", "blue", "brown", "gold", "gray", "green", "pink", "purple", "red", "silver", "white", "yellow"];
const FOODS: &[&str] =
    &["apples", "beans", "bread", "cake", "corn", "dates", "figs", "grapes", "honey", "nuts", "pears", "plums", "rice"];
const TABLE_PHRASES: &[&str] =
    &["What is the {} of the {}?", "Give the {} of the {}.", "Look up the {} of the {}.", "Tell me the {} of the {}."];

/// One cell of a small table.
pub fn table(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(2, 10, 0.6);
    let animals = rng.pick_distinct(ANIMALS, n);
    let mut columns = vec![("job", JOBS), ("color", COLORS), ("food", FOODS)];
    rng.shuffle(&mut columns);
    columns.truncate(rng.between(2, 3));
    let cells: Vec<Vec<&str>> = columns.iter().map(|(_, values)| rng.pick_distinct(values, n)).collect();
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let mut lines = vec![format!("| animal | {} |", titles.join(" | "))];
    for (i, animal) in animals.iter().enumerate() {
        let row: Vec<&str> = cells.iter().map(|column| column[i]).collect();
        lines.push(format!("| {animal} | {} |", row.join(" | ")));
    }
    let table = lines.join("\n");
    let (row, column) = (rng.below(n), rng.below(columns.len()));
    let question = fill(rng.pick(TABLE_PHRASES), &[titles[column], animals[row]]);
    let user = if rng.chance(0.5) { format!("{table}\n{question}") } else { format!("{question}\n{table}") };
    let answer = cells[column][row];
    let lines = [
        format!("Find the row of the {}.", animals[row]),
        lines[row + 1].clone(),
        format!("The {} is {answer}.", titles[column]),
    ];
    Task::text(user, &lines, answer)
}

const CHAIN_PHRASES: &[&str] = &[
    "Start at the {1} and go {0} steps. Where are you?",
    "Where do {0} steps from the {1} lead?",
    "Follow {0} steps from the {1}.",
    "What is {0} steps after the {1}?",
];

/// A chain followed link by link, the steps left counted down; the links stand in the prompt in random order.
pub fn chain(rng: &mut Rng) -> Task {
    let n_steps = rng.long_tailed(1, 9, 0.65);
    let n_links = (n_steps + rng.between(1, 3)).max(3);
    let animals = rng.pick_distinct(ANIMALS, n_links + 1);
    let mut links: Vec<String> = animals.windows(2).map(|pair| format!("- {} > {}", pair[0], pair[1])).collect();
    rng.shuffle(&mut links);
    let start = rng.below(n_links + 1 - n_steps);
    let question = rng.pick(CHAIN_PHRASES).replace("{0}", &n_steps.to_string()).replace("{1}", animals[start]);
    let user = format!("{}\n{question}", links.join("\n"));
    let mut lines = vec![format!("Go {n_steps} steps from the {}, counting down.", animals[start])];
    for step in 0..n_steps {
        lines.push(format!("{} {} > {}", n_steps - 1 - step, animals[start + step], animals[start + step + 1]));
    }
    Task::text(user, &lines, animals[start + n_steps])
}

const DAYS: &[&str] = &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const CALENDAR_PHRASES: &[&str] = &[
    "What comes {} {} after {}?",
    "Today is in {2}. Where are we in {0} {1}?",
    "Start at {2} and go {0} {1} on. Where do you land?",
    "{0} {1} after {2} is what?",
    "Name what is {} {} after {}.",
    "Which one is {} {} after {}?",
    "Count {} {} on from {}.",
    "It was {2}. What is it {0} {1} later?",
];

/// The day or month so many steps after a given one, the steps left counted down.
pub fn calendar(rng: &mut Rng) -> Task {
    let (names, unit) = if rng.chance(0.6) { (DAYS, "days") } else { (MONTHS, "months") };
    let n_steps = rng.long_tailed(2, 40, 0.8);
    let start = rng.below(names.len());
    let phrase = rng
        .pick(CALENDAR_PHRASES)
        .replace("{0}", &n_steps.to_string())
        .replace("{1}", unit)
        .replace("{2}", names[start]);
    let user = fill(&phrase, &[&n_steps.to_string(), unit, names[start]]);
    let mut lines = vec![format!("Go {n_steps} {unit} on, counting down, from {}", names[start])];
    for step in 1..=n_steps {
        lines.push(format!("{} {}", n_steps - step, names[(start + step) % names.len()]));
    }
    Task::text(user, &lines, names[(start + n_steps) % names.len()])
}
