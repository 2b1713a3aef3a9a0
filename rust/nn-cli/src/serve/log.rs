//! One line a request on standard error, as text for people or as JSON for programs.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// Whether lines are JSON. The log is that of the process, as its standard error is.
static JSON: AtomicBool = AtomicBool::new(false);

/// From here on lines are JSON, or text.
pub(super) fn set_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// A line that says something of the server.
pub(super) fn message(level: &str, message: &str) {
    record(&[("level", level.into()), ("message", message.into())]);
}

/// A line with these values; those that are null are left out.
pub(super) fn record(values: &[(&str, Value)]) {
    let line = line(values, JSON.load(Ordering::Relaxed), &stamp(SystemTime::now()));
    // A standard error that is gone leaves nobody to tell.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

fn line(values: &[(&str, Value)], json: bool, stamp: &str) -> String {
    let known = values.iter().filter(|(_, value)| !value.is_null());
    if json {
        let parts = known.map(|(name, value)| format!(", \"{name}\": {value}"));
        return format!("{{\"time\": \"{stamp}\"{}}}\n", parts.collect::<String>());
    }
    let parts = known.map(|(name, value)| format!(" {name}={}", word(value)));
    format!("{stamp}{}\n", parts.collect::<String>())
}

/// A value without spaces around it that could be taken for the next; line ends and quotes of strangers escaped.
fn word(value: &Value) -> String {
    let Some(text) = value.as_str() else { return value.to_string() };
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\=".contains(&byte));
    if plain { text.to_owned() } else { text_in_quotes(text) }
}

/// In quotes, in ASCII: a terminal takes no commands from strangers.
fn text_in_quotes(text: &str) -> String {
    let mut out = String::new();
    for sign in Value::from(text).to_string().chars() {
        if sign.is_ascii() && sign != '\u{7f}' {
            out.push(sign);
        } else {
            out.extend(sign.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// A time as 2026-01-31T12:00:00.000Z.
fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86400, since.as_secs() % 86400);
    // The calendar from the first of March of the year 0, in eras of 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second, milli) = (seconds / 3600, seconds / 60 % 60, seconds % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| stamp(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59.007Z");
    }

    #[test]
    fn a_line_stays_one() {
        let values = [("status", 200.into()), ("path", "/a b\n\u{1b}é".into()), ("error", Value::Null)];
        assert_eq!(line(&values, false, "T"), "T status=200 path=\"/a b\\n\\u001b\\u00e9\"\n");
        assert_eq!(line(&values[..1], true, "T"), "{\"time\": \"T\", \"status\": 200}\n");
    }
}
