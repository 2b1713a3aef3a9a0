//! The profiler, which keeps time, bytes and operations of every kernel call.

use std::ffi::c_char;
use std::ptr;

use crate::context::Turn;
use crate::{Context, Result};

/// What the profiler measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// One line a kernel: calls, time, bytes, operations.
    pub table: String,
    /// The same as JSON.
    pub json: String,
    /// Every call, as JSON for chrome://tracing or ui.perfetto.dev.
    pub chrome_trace: String,
}

type Report<'f> = &'f dyn Fn(&Turn<'_>, *mut c_char, i64, *mut i64) -> i32;

impl Context {
    /// Runs `work` and measures the kernel calls made meanwhile, on whichever thread.
    ///
    /// # Errors
    ///
    /// That of `work`, or [`Error::Call`](crate::Error::Call) when the profiler runs already.
    pub fn profile<R, E: From<crate::Error>>(&self, work: impl FnOnce() -> Result<R, E>) -> Result<(R, Profile), E> {
        let running = Running::begin(
            self,
            |turn| {
                // SAFETY: the context lives.
                let code = unsafe { (turn.functions().nncuda_profile_begin)(turn.handle()) };
                turn.check("nncuda_profile_begin", code)
            },
            |turn| {
                // SAFETY: the context lives.
                let code = unsafe { (turn.functions().nncuda_profile_end)(turn.handle()) };
                turn.check("nncuda_profile_end", code)
            },
        )?;
        let result = work();
        running.stop()?;
        let report = |form: i32| {
            self.sized_text("nncuda_profile_report", &|turn, text, capacity, needed| {
                // SAFETY: the context lives; `text` has the given room, or there is none and it is null.
                unsafe { (turn.functions().nncuda_profile_report)(turn.handle(), form, text, capacity, needed) }
            })
        };
        let profile = Profile {
            table: report(nn_cuda::NNCUDA_REPORT_TABLE)?,
            json: report(nn_cuda::NNCUDA_REPORT_JSON)?,
            chrome_trace: report(nn_cuda::NNCUDA_REPORT_CHROME_TRACE)?,
        };
        Ok((result?, profile))
    }

    /// A text whose size is asked for first.
    pub(crate) fn sized_text(&self, function: &'static str, read: Report<'_>) -> Result<String> {
        let (turn, mut needed) = (self.turn(), 0);
        turn.check(function, read(&turn, ptr::null_mut(), 0, &raw mut needed))?;
        let mut bytes = vec![0_u8; usize::try_from(needed).unwrap_or(0)];
        turn.check(function, read(&turn, bytes.as_mut_ptr().cast(), bytes.len() as i64, &raw mut needed))?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Ends a profile or trace, after a panic too.
pub(crate) struct Running<'c> {
    context: &'c Context,
    end: fn(&Turn<'_>) -> Result<()>,
}

impl<'c> Running<'c> {
    pub(crate) fn begin(
        context: &'c Context,
        begin: impl FnOnce(&Turn<'_>) -> Result<()>,
        end: fn(&Turn<'_>) -> Result<()>,
    ) -> Result<Self> {
        begin(&context.turn())?;
        Ok(Self { context, end })
    }

    pub(crate) fn stop(self) -> Result<()> {
        let ended = (self.end)(&self.context.turn());
        std::mem::forget(self);
        ended
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // A panic is under way: there is no way to report an error.
        let _ = (self.end)(&self.context.turn());
    }
}
