//! Reads the body of a request, within limits of size, time and shape.

use std::future::poll_fn;
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

fn object(body: &[u8]) -> Result<Table, ApiError> {
    match parse_json(body) {
        Ok(mut value @ Value::Table(_)) => {
            if has_odd_numbers(body) {
                restore(&mut value, &mut numbers(body));
            }
            value.as_table().cloned().ok_or_else(|| ApiError::new("not_json", &[]))
        }
        _ => Err(ApiError::new("not_json", &[])),
    }
}

/// Whether there may be whole numbers that are read as numbers with a fraction, and quoted otherwise: those beyond 64 bits, and -0.
fn has_odd_numbers(body: &[u8]) -> bool {
    body.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() >= 19)
        || body.windows(2).any(|pair| pair == b"-0")
}

/// The numbers of a JSON text, in their order.
fn numbers(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while let [first, more @ ..] = rest {
            match first {
                b'"' => {
                    let mut escaped = false;
                    let end = more.iter().position(|byte| match byte {
                        _ if escaped => {
                            escaped = false;
                            false
                        }
                        b'\\' => {
                            escaped = true;
                            false
                        }
                        byte => *byte == b'"',
                    });
                    rest = more.get(end? + 1..)?;
                }
                b'-' | b'0'..=b'9' => {
                    let end =
                        more.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
                    let (number, after) = rest.split_at(1 + end.unwrap_or(more.len()));
                    rest = after;
                    if number != b"-" {
                        return Some(number); // which "-Infinity" is not, that stands as a text
                    }
                }
                _ => rest = more,
            }
        }
        None
    })
}

/// Has the numbers of a value that are whole, as far as 128 bits reach, be whole.
fn restore<'t>(value: &mut Value, numbers: &mut impl Iterator<Item = &'t [u8]>) {
    match value {
        Value::Integer(_) => drop(numbers.next()),
        Value::Float(_) => {
            let whole = numbers.next().and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
            if let Some(whole) = whole {
                *value = Value::Integer(whole);
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
    use super::*;
    use crate::serve::wire::quoted_json;

    #[test]
    fn whole_numbers_stay_whole() {
        let text =
            r#"{"a":[1,1.5,"7\\\"8",1e3],"b":{"c":-100000000000000000000000000000,"d":NaN},"e":18446744073709551616}"#;
        let read = object(text.as_bytes()).unwrap();
        let expected = r#"{"a":[1,1.5,"7\\\"8",1000.0],"b":{"c":-100000000000000000000000000000,"d":"NaN"},"e":18446744073709551616}"#;
        assert_eq!(quoted_json(&Value::Table(read)), expected);
        for wrong in ["", "[]", "3", r#"{"a":1,"a":2}"#, r#"{"a":"\ud800"}"#, r#"{"a":01}"#] {
            assert_eq!(object(wrong.as_bytes()).unwrap_err().code, "not_json", "{wrong}");
        }
    }
}
