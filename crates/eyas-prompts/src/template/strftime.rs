//! The date that `strftime_now` gives: pinned by the run, so that a prompt does not change overnight.

use std::fmt;
use std::str::FromStr;

/// A calendar day, written `2026-01-31`. Its time of day is midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PinnedDate {
    year: u16,
    month: u8,
    day: u8,
}

/// Not a calendar day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a date of the form 2026-01-31")]
pub struct BadDate(pub String);

const MONTHS: [&str; 12] = [
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
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl FromStr for PinnedDate {
    type Err = BadDate;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || BadDate(s.to_owned());
        let [year, month, day] = <[&str; 3]>::try_from(s.split('-').collect::<Vec<_>>()).map_err(|_| bad())?;
        if [year.len(), month.len(), day.len()] != [4, 2, 2] {
            return Err(bad());
        }
        let date = Self {
            year: year.parse().map_err(|_| bad())?,
            month: month.parse().map_err(|_| bad())?,
            day: day.parse().map_err(|_| bad())?,
        };
        let in_range = (1..=12).contains(&date.month) && (1..=days_in_month(date.year, date.month)).contains(&date.day);
        if in_range { Ok(date) } else { Err(bad()) }
    }
}

impl fmt::Display for PinnedDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl PinnedDate {
    /// `strftime` in the C locale. The error names a directive that is not known.
    pub(super) fn format(self, format: &str) -> Result<String, String> {
        let mut text = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let Some(directive) = chars.next() else { return Err("%".to_owned()) };
            let without_padding = if directive == '-' { chars.next() } else { None };
            let piece = match (directive, without_padding) {
                ('-', Some('d')) => self.day.to_string(),
                ('-', Some('m')) => self.month.to_string(),
                ('-', Some('H' | 'M' | 'S')) => "0".to_owned(),
                ('-', Some('I')) | ('I', _) => "12".to_owned(),
                ('-', other) => return Err(format!("%-{}", other.unwrap_or_default())),
                ('Y', _) => self.year.to_string(),
                ('y', _) => format!("{:02}", self.year % 100),
                ('m', _) => format!("{:02}", self.month),
                ('d', _) => format!("{:02}", self.day),
                ('e', _) => format!("{:2}", self.day),
                ('j', _) => format!("{:03}", self.day_of_year()),
                ('B', _) => self.month_name().to_owned(),
                ('b' | 'h', _) => self.month_name()[..3].to_owned(),
                ('A', _) => self.day_name().to_owned(),
                ('a', _) => self.day_name()[..3].to_owned(),
                ('H' | 'M' | 'S', _) => "00".to_owned(),
                ('p', _) => "AM".to_owned(),
                ('F', _) => self.to_string(),
                ('T', _) => "00:00:00".to_owned(),
                ('%', _) => "%".to_owned(),
                (other, _) => return Err(format!("%{other}")),
            };
            text.push_str(&piece);
        }
        Ok(text)
    }

    fn month_name(self) -> &'static str {
        MONTHS[usize::from(self.month) - 1]
    }

    fn day_of_year(self) -> u32 {
        (1..self.month).map(|month| u32::from(days_in_month(self.year, month))).sum::<u32>() + u32::from(self.day)
    }

    fn day_name(self) -> &'static str {
        // Sakamoto: days of the week run on from Sunday.
        const SHIFT: [u32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = u32::from(self.year) - u32::from(self.month < 3 && self.year > 0);
        let day = year + year / 4 - year / 100 + year / 400 + SHIFT[usize::from(self.month) - 1] + u32::from(self.day);
        DAYS[(day % 7) as usize]
    }
}

fn days_in_month(year: u16, month: u8) -> u8 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_print_as_python_prints_them() {
        let date: PinnedDate = "2026-01-05".parse().unwrap();
        // datetime(2026, 1, 5).strftime(...)
        let format = "%d %B %Y|%Y-%m-%d|%A %a %b %-d %e %j %y|%H:%M %p %%";
        assert_eq!(date.format(format).unwrap(), "05 January 2026|2026-01-05|Monday Mon Jan 5  5 005 26|00:00 AM %");
        assert_eq!(date.format("%Q").unwrap_err(), "%Q");
        for bad in ["2026-02-29", "2026-13-01", "2026-1-01", "today", ""] {
            assert_eq!(bad.parse::<PinnedDate>(), Err(BadDate(bad.to_owned())));
        }
        assert!("2024-02-29".parse::<PinnedDate>().is_ok());
    }
}
