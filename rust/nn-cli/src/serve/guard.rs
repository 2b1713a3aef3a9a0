//! Who may ask: API keys, and the names by which a server without keys may be called.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use sha2::{Digest, Sha256};

use super::api::{API, ApiError};

/// Routes that need no key: the page, which has a place to enter one, and what asks whether the server lives.
const OPEN_ROUTES: [&str; 4] = ["/", "/health", "/health/live", "/health/ready"];

/// Whether a name or address is this machine alone.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// Checks each request. Without keys it answers only to loopback names, unless `anyone` may ask: otherwise a page of a stranger
/// could, by a name of its own that leads to this machine.
#[derive(Debug)]
pub(super) struct Guard {
    digests: Vec<[u8; 32]>,
    anyone: bool,
}

impl Guard {
    pub(super) fn new(keys: &[String], anyone: bool) -> Self {
        Self { digests: keys.iter().map(|key| digest(key.as_bytes())).collect(), anyone }
    }

    /// Refuses a request that may not go on.
    pub(super) fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
        let limits = &API.limits;
        if headers.len() > limits.headers {
            return Err(ApiError::new(
                "headers_too_large",
                &[("most", &limits.header_bytes), ("count", &limits.headers)],
            ));
        }
        if !self.digests.is_empty() {
            let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
            if !OPEN_ROUTES.contains(&path) && !self.knows(given) {
                return Err(ApiError::new("invalid_api_key", &[]).with("www-authenticate", "Bearer"));
            }
        } else if !self.anyone {
            let given = headers.get(HOST).map_or(&b""[..], |value| value.as_bytes());
            let host: String = given.iter().map(|byte| char::from(*byte)).collect();
            if !is_loopback(&without_port(&host).to_lowercase()) {
                let shown: String = host.chars().take(64).collect();
                return Err(ApiError::new("wrong_host", &[("host", &shown)]));
            }
        }
        Ok(())
    }

    fn knows(&self, authorization: &[u8]) -> bool {
        let (scheme, key) = match authorization.iter().position(|byte| *byte == b' ') {
            Some(at) => (&authorization[..at], authorization[at + 1..].trim_ascii()),
            None => (authorization, &b""[..]),
        };
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return false;
        }
        let given = digest(key);
        // All of them, and all of each, so that the time tells nothing; of a digest it would tell little anyway.
        self.digests.iter().fold(false, |known, one| known | same(one, &given))
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Whether two digests are equal, in a time that does not depend on where they differ.
fn same(one: &[u8; 32], two: &[u8; 32]) -> bool {
    std::hint::black_box(one.iter().zip(two).fold(0, |different, (one, two)| different | (one ^ two))) == 0
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, path: &str, name: &'static str, value: &str) -> Option<&'static str> {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        guard.check(path, &headers).err().map(|error| error.code)
    }

    #[test]
    fn keys_are_needed_where_there_are_some() {
        let guard = Guard::new(&["one".into(), "two".into()], false);
        for (value, error) in [
            ("Bearer one", None),
            ("bearer  two ", None),
            ("Bearer three", Some("invalid_api_key")),
            ("Basic one", Some("invalid_api_key")),
            ("one", Some("invalid_api_key")),
        ] {
            assert_eq!(check(&guard, "/v1/models", "authorization", value), error, "{value}");
        }
        assert_eq!(check(&guard, "/health", "host", "x"), None);
    }

    #[test]
    fn without_keys_loopback_alone_is_answered() {
        let guard = Guard::new(&[], false);
        for name in ["localhost:80", "a.localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"] {
            assert_eq!(check(&guard, "/", "host", name), None, "{name}");
        }
        for name in ["example.org", "127.0.0.1.example.org:80", "10.0.0.1", ""] {
            assert_eq!(check(&guard, "/", "host", name), Some("wrong_host"), "{name}");
        }
        assert_eq!(check(&Guard::new(&[], true), "/", "host", "example.org"), None);
    }
}
