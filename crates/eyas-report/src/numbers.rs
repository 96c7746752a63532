//! Numbers as people read them.

/// Digits in groups of three: `28,774`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One decimal, the whole part in groups of three: `1,416.3`; `n/a` where there is no such number.
pub(crate) fn decimal(value: Option<f64>) -> String {
    let Some(value) = value else { return "n/a".to_owned() };
    let text = format!("{value:.1}");
    let (whole, tenth) = text.split_once('.').unwrap_or((&text, "0"));
    match whole.parse::<u64>() {
        Ok(whole) => format!("{}.{tenth}", count(whole)),
        Err(_) => text,
    }
}

/// A share in per cent: one decimal, more where it would wrongly read 0 or 100.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let odd = |limit: f64| percent > 0.0 && percent < limit || percent > 100.0 - limit && percent < 100.0;
    if odd(0.005) {
        format!("{percent:.4} %")
    } else if odd(0.05) {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// A count of bytes: `41.3 MB`.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") }
}

/// A length as an axis label: `800`, `1.5k`, `20k`.
pub(crate) fn short(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        1000..1_000_000 if n.is_multiple_of(1000) => format!("{}k", n / 1000),
        1000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ if n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([decimal(None), decimal(Some(0.04)), decimal(Some(1416.26))], ["n/a", "0.0", "1,416.3"]);
        assert_eq!(
            [percent(0.0), percent(1.0), percent(0.0003), percent(0.99998)],
            ["0.0 %", "100.0 %", "0.03 %", "99.9980 %"]
        );
        assert_eq!([bytes(999), bytes(41_300_000)], ["999 B", "41.3 MB"]);
        assert_eq!([short(800), short(1500), short(2000), short(1024)], ["800", "1.5k", "2k", "1.0k"]);
    }
}
