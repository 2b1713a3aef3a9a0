//! How long the rules of a file may work on a text, and how much longer they may make it.
//!
//! Rules for texts are programs: they may double a text sixty times, or look through it for ever. The library that runs
//! them has no limits of its own, and drops some of the errors of a rule, so that the limits are the thread's while it
//! works, and what they refused is kept until it is done.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Time for any text, and for each byte of it.
const ANYWAY: Duration = Duration::from_secs(10);
const EACH: Duration = Duration::from_micros(1);

/// Bytes that all rules together may write for any text, and for each byte of it.
const WRITTEN_ANYWAY: usize = 1 << 20;
const WRITTEN_EACH: usize = 64;

struct Budget {
    until: Instant,
    seconds: Duration,
    left: usize,
    refused: Option<String>,
}

thread_local! {
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// Runs work of the library on `size` bytes of text. The error says what was wrong, and ends a sentence that begins with
/// what was to be done.
pub(super) fn within<T>(size: usize, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    let seconds = ANYWAY + EACH.saturating_mul(u32::try_from(size).unwrap_or(u32::MAX));
    let left = size.saturating_mul(WRITTEN_EACH).saturating_add(WRITTEN_ANYWAY);
    let budget = Budget { until: Instant::now() + seconds, seconds, left, refused: None };
    BUDGET.set(Some(budget));
    let done = catch_unwind(AssertUnwindSafe(work));
    let refused = BUDGET.take().and_then(|budget| budget.refused);
    match (refused, done) {
        (Some(problem), _) => Err(format!(": {problem}")),
        (None, Ok(Ok(value))) => Ok(value),
        (None, Ok(Err(error))) => Err(format!(" ({error})")),
        (None, Err(_)) => Err(": the library that reads it gave up".to_owned()),
    }
}

/// Fails once the time of this thread's text is over.
pub(super) fn check_time() -> tokenizers::Result<()> {
    let over = BUDGET.with_borrow(|budget| {
        let budget = budget.as_ref()?;
        (Instant::now() > budget.until).then(|| format!("it ran for more than {} s", budget.seconds.as_secs_f64()))
    });
    over.map_or(Ok(()), refuse)
}

/// Counts bytes that a rule is about to write, or wrote; fails when those of the text are used up.
pub(super) fn write(bytes: usize) -> tokenizers::Result<()> {
    let enough = BUDGET.with_borrow_mut(|budget| {
        let Some(budget) = budget else { return true };
        let left = budget.left.checked_sub(bytes);
        budget.left = left.unwrap_or(0);
        left.is_some()
    });
    if enough { Ok(()) } else { refuse("its rules make the text too long".to_owned()) }
}

/// Fails, in such a way that the error cannot be dropped.
pub(super) fn refuse<T>(problem: String) -> tokenizers::Result<T> {
    BUDGET.with_borrow_mut(|budget| {
        if let Some(budget) = budget {
            budget.refused.get_or_insert_with(|| problem.clone());
        }
    });
    Err(problem.into())
}
