//! Reads the body of a request, within limits of size, time and shape.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::body::Body;
use nn_core::format::{Table, Value, parse_json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::api::{API, ApiError};

/// Bytes from which on a body is parsed beside the connections.
const LARGE: usize = 1 << 16;

/// The JSON object that a request holds.
pub(super) async fn read_json_body(request: Request) -> Result<Table, ApiError> {
    check_head(request.headers())?;
    let seconds = API.limits.body_seconds;
    let body = match timeout(Duration::from_secs(seconds), read(request)).await {
        Ok(body) => body?,
        Err(_) => {
            return Err(ApiError::new("body_too_slow", &[("seconds", &seconds)]).with("connection", "close"));
        }
    };
    if body.len() < LARGE {
        return object(&body);
    }
    spawn_blocking(move || object(&body)).await.unwrap_or_else(|_| Err(ApiError::new("internal_error", &[])))
}

/// Refuses what no body can make right.
fn check_head(headers: &HeaderMap) -> Result<(), ApiError> {
    let header = |name| headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    let kind = header(&CONTENT_TYPE).split(|byte| *byte == b';').next().unwrap_or_default();
    if !kind.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        return Err(ApiError::new("not_a_json_type", &[]));
    }
    let length = std::str::from_utf8(header(&CONTENT_LENGTH)).ok().and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > API.limits.body_bytes as u64) {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> ApiError {
    ApiError::new("body_too_large", &[("most", &API.limits.body_bytes)])
}

async fn read(request: Request) -> Result<Vec<u8>, ApiError> {
    let (mut body, mut bytes) = (request.into_body(), Vec::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // The client left, which then reads nothing, or sent chunks that are none.
        let frame = frame.map_err(|_| ApiError::new("bad_http", &[]))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > API.limits.body_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// The object that a JSON text is.
pub(super) fn object(body: &[u8]) -> Result<Table, ApiError> {
    let numbers = numbers(body);
    let odd_ones: Vec<&Range<usize>> =
        numbers.iter().filter(|number| odd(&body[(*number).clone()]).is_some()).collect();
    let parsed = if odd_ones.is_empty() {
        parse_json(body)
    } else {
        let (mut plain, mut copied) = (Vec::with_capacity(body.len()), 0);
        for number in odd_ones {
            plain.extend_from_slice(&body[copied..number.start]);
            plain.extend_from_slice(b"0.5");
            copied = number.end;
        }
        plain.extend_from_slice(&body[copied..]);
        parse_json(&plain).map(|mut value| {
            restore(&mut value, &mut numbers.iter().map(|number| &body[number.clone()]));
            value
        })
    };
    match parsed {
        Ok(Value::Table(table)) => Ok(table),
        _ => Err(ApiError::new("not_json", &[])),
    }
}

/// A number that would be read otherwise than by Python, and therefore be quoted otherwise: a whole one beyond 64 bits, -0, and one
/// that is not finite.
fn odd(number: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(number).ok()?;
    if matches!(text, "NaN" | "Infinity" | "-Infinity") {
        return text.parse().ok().map(Value::Float);
    }
    if text != "-0" && text.len() < 19 && !text.contains(['e', 'E']) {
        return None;
    }
    match serde_json::from_str::<f64>(text) {
        Ok(_) => {
            let whole: i128 = text.parse().ok()?;
            (text == "-0" || i64::try_from(whole).is_err()).then_some(Value::Integer(whole))
        }
        Err(error) if error.to_string().starts_with("number out of range") => text.parse().ok().map(Value::Float),
        Err(_) => None,
    }
}

/// Where the numbers of a JSON text stand, in their order, words for those that are not finite among them.
fn numbers(text: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(first) = text.get(at) {
        let start = at;
        at += 1;
        match first {
            b'"' => {
                while text.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' | b'I' | b'N' => {
                while text.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(byte)) {
                    at += 1;
                }
                found.push(start..at);
            }
            _ => {}
        }
    }
    found
}

/// Has the odd numbers of a value be what they are, as far as 128 bits reach.
fn restore<'t>(value: &mut Value, numbers: &mut impl Iterator<Item = &'t [u8]>) {
    match value {
        Value::Integer(_) | Value::Float(_) => {
            if let Some(number) = numbers.next().and_then(odd) {
                *value = number;
            }
        }
        Value::List(list) => list.iter_mut().for_each(|one| restore(one, numbers)),
        Value::Table(table) => {
            *table = std::mem::take(table)
                .iter()
                .map(|(name, one)| {
                    let mut one = one.clone();
                    restore(&mut one, numbers);
                    (name.to_owned(), one)
                })
                .collect();
        }
        Value::None | Value::Bool(_) | Value::Text(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use nn_core::format::write_json;

    use super::*;

    #[test]
    fn whole_numbers_stay_whole() {
        let text = r#"{"a":[1,1.5,"7\\\"8",1e3,-0],"b":{"c":-100000000000000000000000000000,"d":NaN},"e":1e999,"f":18446744073709551616}"#;
        let read = object(text.as_bytes()).unwrap();
        let expected = text.replace("1e3", "1000.0").replace("-0]", "0]").replace("1e999", "Infinity");
        assert_eq!(write_json(&Value::Table(read)), expected);
        for wrong in
            ["", "[]", "3", r#"{"a":1,"a":2}"#, r#"{"a":"\ud800"}"#, r#"{"a":01}"#, r#"{"a":01e999}"#, r#"{"a":-NaN}"#]
        {
            assert_eq!(object(wrong.as_bytes()).unwrap_err().code, "not_json", "{wrong}");
        }
    }
}
