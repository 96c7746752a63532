//! A histogram of lengths drawn with block characters.

use eyas_inspect::Bin;

use crate::numbers::{count, percent, short};

/// Eighths of a cell, from the left.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// One line a bin: range, bar, count, share. Bars fill what `width` leaves; `ascii`: `#` instead of blocks.
pub(crate) fn lines(bins: &[Bin], width: usize, ascii: bool) -> Vec<String> {
    let all: u64 = bins.iter().map(|bin| bin.count).sum();
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0);
    let dash = if ascii { "-" } else { "–" };
    let label = |bin: &Bin| {
        if bin.to == bin.from + 1 { short(bin.from) } else { format!("{}{dash}{}", short(bin.from), short(bin.to)) }
    };
    let labels: Vec<String> = bins.iter().map(label).collect();
    let n_label = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let n_count = count(most).len();
    let n_bar = width.saturating_sub(n_label + n_count + 14).max(8);
    let line = |(bin, label): (&Bin, &String)| {
        let bar = bar(bin.count, most, n_bar, ascii);
        let share = percent(bin.count as f64 / all.max(1) as f64);
        let pad = n_bar.saturating_sub(bar.chars().count());
        format!("{label:>n_label$}  {bar}{:pad$}  {:>n_count$}  {share:>7}", "", count(bin.count))
    };
    bins.iter().zip(&labels).map(line).collect()
}

/// A bar of `value` out of `most`, which fills `cells`. What is not zero is never drawn as nothing.
fn bar(value: u64, most: u64, cells: usize, ascii: bool) -> String {
    if value == 0 || most == 0 {
        return String::new();
    }
    let cells = cells as u64;
    if ascii {
        let n = (value * cells).div_ceil(most).min(cells);
        return (0..n).map(|_| '#').collect();
    }
    let eighths = (value * 8 * cells / most).max(1);
    let (whole, rest) = (eighths / 8, eighths % 8);
    let part = EIGHTHS.iter().zip(0..).find(|(_, n)| *n == rest).map_or("", |(part, _)| part);
    (0..whole).map(|_| '█').chain(part.chars()).collect()
}
