//! Sums, differences, products, unit conversion, extremes of a list.

use super::{Task, fill};
use crate::rng::Rng;

const SUM_PHRASES: &[&str] =
    &["What is {}?", "Add: {}", "Compute {}.", "How much is {}?", "Please work out {}.", "Find the sum {}."];
const DIFFERENCE_PHRASES: &[&str] = &[
    "What is {}?",
    "Subtract: {}",
    "Compute {}.",
    "How much is {}?",
    "Please work out {}.",
    "Find the difference {}.",
];

/// A number with `n_digits` digits.
fn number(rng: &mut Rng, n_digits: usize) -> u64 {
    let low = if n_digits == 1 { 1 } else { 10u64.pow(u32::try_from(n_digits).unwrap_or(1) - 1) };
    low + rng.next_u64() % (10 * if n_digits == 1 { 1 } else { low } - low)
}

fn n_digits(rng: &mut Rng) -> usize {
    rng.long_tailed(1, 6, 0.55)
}

/// All digits but the last, `0` once there are none left; and the last digit.
fn split_last(number: &str) -> (&str, u32) {
    let (head, last) = number.split_at(number.len() - 1);
    (if head.is_empty() { "0" } else { head }, last.parse().unwrap_or(0))
}

/// Writes the steps of `x + y` and returns the sum.
fn add_steps(x: u64, y: u64, lines: &mut Vec<String>) -> u64 {
    let (mut x, mut y) = (x.to_string(), y.to_string());
    let (mut carry, mut result) = (0, String::new());
    loop {
        lines.push(format!("{x}+{y} c{carry}"));
        let ((x_head, a), (y_head, b)) = (split_last(&x), split_last(&y));
        let sum = a + b + carry;
        let is_last = x.len() == 1 && y.len() == 1;
        result = if is_last { format!("{sum}{result}") } else { format!("{}{result}", sum % 10) };
        lines.push(format!("{a}+{b}+{carry}={sum}:{result}"));
        if is_last {
            return result.parse().unwrap_or(0);
        }
        carry = sum / 10;
        (x, y) = (x_head.to_owned(), y_head.to_owned());
    }
}

/// Whole numbers added two at a time, each pair digit by digit from the right with a carry.
pub fn sum(rng: &mut Rng) -> Task {
    let n_operands = rng.long_tailed(2, 5, 0.2);
    let size = n_digits(rng);
    let operands: Vec<u64> = (0..n_operands)
        .map(|_| {
            let n = if rng.chance(0.6) { size } else { rng.between(1, size) };
            number(rng, n)
        })
        .collect();
    let joined: Vec<String> = operands.iter().map(u64::to_string).collect();
    let user = fill(rng.pick(SUM_PHRASES), &[&joined.join(" + ")]);
    let mut lines = vec!["Add digit by digit from the right.".to_owned()];
    let mut total = operands[0];
    for operand in &operands[1..] {
        total = add_steps(total, *operand, &mut lines);
    }
    Task::text(user, &lines, total.to_string())
}

/// A difference that is not negative, digit by digit from the right with a borrow.
pub fn difference(rng: &mut Rng) -> Task {
    let size = n_digits(rng);
    let (a, n) = (number(rng, size), rng.between(1, size));
    let b = number(rng, n);
    let (high, low) = (a.max(b), a.min(b));
    let user = fill(rng.pick(DIFFERENCE_PHRASES), &[&format!("{high} - {low}")]);
    let mut lines = vec!["Subtract digit by digit from the right.".to_owned()];
    let (mut x, mut y) = (high.to_string(), low.to_string());
    let (mut borrow, mut result) = (0, String::new());
    loop {
        lines.push(format!("{x}-{y} b{borrow}"));
        let ((x_head, a), (y_head, b)) = (split_last(&x), split_last(&y));
        let lent = if a < b + borrow { a + 10 } else { a };
        let digit = lent - b - borrow;
        result = format!("{digit}{result}");
        lines.push(format!("{lent}-{b}-{borrow}={digit}:{result}"));
        if x.len() == 1 && y.len() == 1 {
            break;
        }
        borrow = u32::from(lent >= 10);
        (x, y) = (x_head.to_owned(), y_head.to_owned());
    }
    Task::text(user, &lines, (high - low).to_string())
}

const PRODUCT_PHRASES: &[&str] =
    &["What is {}?", "Multiply: {}", "Compute {}.", "How much is {}?", "Please work out {}.", "Find the product {}."];

/// A whole number times a digit, digit by digit from the right with a carry.
pub fn product(rng: &mut Rng) -> Task {
    let size = n_digits(rng);
    let (x, factor) = (number(rng, size), rng.between(2, 9) as u64);
    let user = fill(rng.pick(PRODUCT_PHRASES), &[&format!("{x} * {factor}")]);
    let mut lines = vec!["Multiply digit by digit from the right.".to_owned()];
    let product = multiply_steps(x, factor, &mut lines);
    Task::text(user, &lines, product.to_string())
}

/// Steps from one unit to the next smaller one: (unit, smaller unit, how many).
const UNIT_STEPS: &[(&str, &str, u64)] = &[
    ("weeks", "days", 7),
    ("hours", "minutes", 60),
    ("minutes", "seconds", 60),
    ("yards", "feet", 3),
    ("kilometers", "meters", 1000),
    ("meters", "centimeters", 100),
    ("centimeters", "millimeters", 10),
    ("tons", "kilograms", 1000),
    ("kilograms", "grams", 1000),
    ("liters", "milliliters", 1000),
    ("gallons", "quarts", 4),
    ("quarts", "pints", 2),
    ("pints", "cups", 2),
    ("bytes", "bits", 8),
    ("euros", "cents", 100),
    ("decades", "years", 10),
    ("centuries", "decades", 10),
];
const CONVERT_PHRASES: &[&str] = &[
    "Convert {} {} to {}.",
    "How much is {} {} in {}?",
    "Change {} {} into {}.",
    "What is {} {} in {}?",
    "Give {} {} in {}.",
];

/// Writes the steps of `x * factor` for a factor of one digit and returns the product.
fn multiply_steps(x: u64, factor: u64, lines: &mut Vec<String>) -> u64 {
    let mut x = x.to_string();
    let (mut carry, mut result) = (0, String::new());
    loop {
        lines.push(format!("{x}*{factor} c{carry}"));
        let (head, digit) = split_last(&x);
        let product = u64::from(digit) * factor + carry;
        let is_last = x.len() == 1;
        result = if is_last { format!("{product}{result}") } else { format!("{}{result}", product % 10) };
        lines.push(format!("{digit}*{factor}+{carry}={product}:{result}"));
        if is_last {
            return result.parse().unwrap_or(0);
        }
        carry = product / 10;
        x = head.to_owned();
    }
}

/// Conversion to a smaller unit, over one or two steps.
pub fn convert(rng: &mut Rng) -> Task {
    let first = rng.below(UNIT_STEPS.len());
    let wanted = rng.long_tailed(1, 2, 0.35);
    let mut path = vec![first];
    while path.len() < wanted {
        let to = UNIT_STEPS[path[path.len() - 1]].1;
        match UNIT_STEPS.iter().position(|step| step.0 == to) {
            Some(next) => path.push(next),
            None => break,
        }
    }
    let (from, to) = (UNIT_STEPS[path[0]].0, UNIT_STEPS[path[path.len() - 1]].1);
    let size = rng.long_tailed(1, 4, 0.4);
    let mut amount = number(rng, size).max(2);
    let user = fill(rng.pick(CONVERT_PHRASES), &[&amount.to_string(), from, to]);
    let mut lines = Vec::new();
    for step in path {
        let (from, to, factor) = UNIT_STEPS[step];
        lines.push(format!("From {from} to {to} *{factor}"));
        amount = match factor {
            10 | 100 | 1000 => {
                lines.push(format!("{amount}*{factor}={}", amount * factor));
                amount * factor
            }
            60 => {
                let six = multiply_steps(amount, 6, &mut lines);
                lines.push(format!("{six}*10={}", six * 10));
                six * 10
            }
            _ => multiply_steps(amount, factor, &mut lines),
        };
    }
    Task::text(user, &lines, amount.to_string())
}

const LARGEST_PHRASES: &[&str] =
    &["Which is the largest: {}?", "Find the largest of {}.", "What is the largest number of {}?", "Largest of {}?"];
const SMALLEST_PHRASES: &[&str] = &[
    "Which is the smallest: {}?",
    "Find the smallest of {}.",
    "What is the smallest number of {}?",
    "Smallest of {}?",
];

/// The largest or smallest of a list, keeping the best so far.
pub fn extreme(rng: &mut Rng) -> Task {
    let n = rng.long_tailed(2, 16, 0.6);
    let mut numbers: Vec<usize> = Vec::new();
    while numbers.len() < n {
        let candidate = rng.between(10, 99);
        if !numbers.contains(&candidate) {
            numbers.push(candidate);
        }
    }
    let largest = rng.chance(0.5);
    let joined: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let user = fill(rng.pick(if largest { LARGEST_PHRASES } else { SMALLEST_PHRASES }), &[&joined.join(", ")]);
    let mut best = numbers[0];
    let mut lines = vec![format!("Keep the {} so far.", if largest { "largest" } else { "smallest" })];
    for number in numbers {
        best = if largest { best.max(number) } else { best.min(number) };
        lines.push(format!("{number}: {best}"));
    }
    Task::text(user, &lines, best.to_string())
}
