//! SHA-256 of what a run is made of, in hexadecimal digits.

use std::io::Read;

use sha2::{Digest, Sha256};

/// That of some bytes.
pub(super) fn of_bytes(bytes: &[u8]) -> String {
    digits(Sha256::new_with_prefix(bytes))
}

/// How many bytes there are to read, and that of them.
pub(super) fn of_all(mut source: impl Read) -> std::io::Result<(u64, String)> {
    let (mut digest, mut piece, mut size) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        match source.read(&mut piece)? {
            0 => return Ok((size, digits(digest))),
            count => {
                digest.update(&piece[..count]);
                size += count as u64;
            }
        }
    }
}

/// Of a digest that is complete.
pub(super) fn digits(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
