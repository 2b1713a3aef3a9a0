//! How the commands write for people.

use nn_core::format::value::general;

/// A number of bytes: 1536 is "1.5 KiB".
pub(crate) fn bytes_text(count: u64) -> String {
    let mut amount = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return if unit == "B" { format!("{amount:.0} {unit}") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

/// A count: 15345920 is "15.35 M".
pub(crate) fn count_text(count: u128) -> String {
    for (limit, unit) in [(1_000_000_000, "B"), (1_000_000, "M"), (1000, "k")] {
        if count >= limit {
            return format!("{:.2} {unit}", count as f64 / limit as f64);
        }
    }
    count.to_string()
}

/// A whole number with its digits in groups: 1234567 is "1,234,567".
pub(crate) fn grouped_text(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::from(if number < 0.0 { "-" } else { "" });
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three significant digits: 0.0123, 1.2e-05.
pub(crate) fn short_text(number: f64) -> String {
    general(number, 3)
}

/// Rows of cells as columns, as wide as their widest cell.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        // A width in a format is at most 65535; a name or a shape in a file may be wider.
        let padded = |(cell, width): (&String, &usize)| cell.clone() + &" ".repeat(width - cell.chars().count());
        let cells: Vec<String> = row.iter().zip(&widths).map(padded).collect();
        text.push_str("  ");
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([bytes_text(5), bytes_text(1536), bytes_text(3 << 40)], ["5 B", "1.5 KiB", "3.0 TiB"]);
        assert_eq!([count_text(999), count_text(15_345_920), count_text(6_882_678_528)], ["999", "15.35 M", "6.88 B"]);
        let grouped = [0.4, 999.0, 1000.0, 1_234_567.8].map(grouped_text);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,568"]);
        let short = [1.0, 0.012_345, 99.96, 1.21e-5, 1e-6, 1234.0, 0.000_999_9].map(short_text);
        assert_eq!(short, ["1", "0.0123", "100", "1.21e-05", "1e-06", "1.23e+03", "0.001"]);
        assert_eq!(columns(&[vec!["a".into(), "b".into()], vec!["long".into(), "c".into()]]), "  a     b\n  long  c\n");
    }
}
