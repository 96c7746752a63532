//! Look-ups: tables, chains of people, the calendar.

use super::{Task, fill};
use crate::rng::Rng;

const NAMES: &[&str] = &[
    "Ada", "Amir", "Anna", "Ben", "Bruno", "Carla", "Chen", "Clara", "Dana", "Diego", "Elena", "Emil", "Fatima", "Felix",
    "Greta", "Hana", "Hugo", "Ines", "Ivan", "Jonas", "Julia", "Kenji", "Lena", "Leo", "Lucia", "Marco", "Maria", "Nadia",
    "Nina", "Omar", "Oscar", "Paul", "Petra", "Rosa", "Samir", "Sofia", "Tara", "Tomas", "Vera", "Yusuf",
];
pub(crate) const CITIES: &[&str] = &[
    "Athens", "Berlin", "Boston", "Cairo", "Delhi", "Dublin", "Geneva", "Havana", "Kyoto", "Lagos", "Lima", "Lisbon",
    "London", "Madrid", "Milan", "Moscow", "Nairobi", "Oslo", "Paris", "Prague", "Quito", "Rome", "Seoul", "Sydney",
    "Tokyo", "Tunis", "Vienna", "Warsaw",
];
const JOBS: &[&str] =
    &["baker", "cook", "driver", "farmer", "judge", "nurse", "painter", "pilot", "singer", "tailor", "teacher", "writer"];
const TABLE_PHRASES: &[&str] = &["What is the {} of {}?", "Give the {} of {}.", "Look up the {} of {}.", "Tell me the {} of {}."];

/// One cell of a small table of people.
pub fn table(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(2, 10, 0.6);
    let (names, cities) = (rng.pick_distinct(NAMES, n), rng.pick_distinct(CITIES, n));
    let mut columns = vec!["city", "job", "age"];
    rng.shuffle(&mut columns);
    columns.truncate(rng.between(2, 3));
    let mut rows = Vec::new();
    for (name, city) in names.iter().zip(&cities) {
        let cells: Vec<String> = columns
            .iter()
            .map(|column| match *column {
                "city" => (*city).to_owned(),
                "job" => rng.pick(JOBS).to_owned(),
                _ => rng.between(18, 90).to_string(),
            })
            .collect();
        rows.push((*name, cells));
    }
    let mut table = format!("| name | {} |\n", columns.join(" | "));
    let written: Vec<String> = rows.iter().map(|(name, cells)| format!("| {name} | {} |", cells.join(" | "))).collect();
    table.push_str(&written.join("\n"));
    let (row, column) = (rng.below(n), rng.below(columns.len()));
    let question = fill(rng.pick(TABLE_PHRASES), &[columns[column], rows[row].0]);
    let user = if rng.chance(0.5) { format!("{table}\n{question}") } else { format!("{question}\n{table}") };
    let answer = rows[row].1[column].clone();
    let lines = [
        format!("Find the row of {}.", rows[row].0),
        format!("| name | {} |", columns.join(" | ")),
        written[row].clone(),
        format!("The {} is {answer}.", columns[column]),
    ];
    Task::text(user, &lines, answer)
}

const CHAIN_PHRASES: &[&str] = &["Who is {} steps above {}?", "Go {} steps up from {}: who is it?", "Climb {} steps from {}. Who is there?"];

/// A chain of people followed link by link; the links stand in the prompt in random order.
pub fn chain(rng: &mut Rng) -> Task {
    let n_steps = rng.long_tailed(1, 12, 0.65);
    let n_people = (n_steps + 1 + rng.between(1, 3)).max(4);
    let people = rng.pick_distinct(NAMES, n_people);
    let mut links: Vec<String> = people.windows(2).map(|pair| format!("{} works for {}.", pair[0], pair[1])).collect();
    rng.shuffle(&mut links);
    let start = rng.below(n_people - n_steps);
    let question = fill(rng.pick(CHAIN_PHRASES), &[&n_steps.to_string(), people[start]]);
    let user = format!("{} {question}", links.join(" "));
    let mut lines = vec![format!("Go up {n_steps} from {}.", people[start])];
    for step in 1..=n_steps {
        lines.push(format!("{step}: {} works for {}.", people[start + step - 1], people[start + step]));
    }
    Task::text(user, &lines, people[start + n_steps])
}

const DAYS: &[&str] = &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: &[&str] = &[
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
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

/// The day or month so many steps after a given one, counted out.
pub fn calendar(rng: &mut Rng) -> Task {
    let (names, unit) = if rng.chance(0.6) { (DAYS, "days") } else { (MONTHS, "months") };
    let n_steps = rng.long_tailed(2, 40, 0.85);
    let start = rng.below(names.len());
    let phrase = rng.pick(CALENDAR_PHRASES).replace("{0}", &n_steps.to_string()).replace("{1}", unit).replace("{2}", names[start]);
    let user = fill(&phrase, &[&n_steps.to_string(), unit, names[start]]);
    let mut lines = vec![format!("Go {n_steps} {unit} from {}.", names[start])];
    for step in 1..=n_steps {
        lines.push(format!("{step}: {}", names[(start + step) % names.len()]));
    }
    Task::text(user, &lines, names[(start + n_steps) % names.len()])
}
