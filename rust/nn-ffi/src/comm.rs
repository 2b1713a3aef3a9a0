//! Several ranks on one job: communicators.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nn_cuda::nncuda_comm;

use crate::call::{Call, Operand, Sizes};
use crate::context::{Released, Turn};
use crate::handle::Handle;
use crate::shards::rows;
use crate::{Context, DType, Error, Result, Shard, Tensor, Transport};

/// A communicator: one of the ranks that work on a job, each with a context of its own.
///
/// All ranks make the same calls on it, in the same order and with the same sizes. Those that take tensors are queued and
/// captured like kernels, and change the tensors in place; the others wait for the peers. A failed, lost, hanging or unlike
/// rank is [`Status::Peer`](crate::Status::Peer) on all others, whose sentence names it; the communicator is then lost.
///
/// A `Comm` is a handle: clones are the same communicator. When the last of them is dropped, and with it the graphs that
/// captured calls on it, the rank leaves, without waiting for the others.
///
/// ```
/// use std::time::Duration;
///
/// use nn_ffi::{Comm, Context, DType, Device, Transport};
///
/// # fn main() -> nn_ffi::Result<()> {
/// std::thread::scope(|scope| {
///     for rank in 0..3 {
///         scope.spawn(move || -> nn_ffi::Result<()> {
///             let context = Context::new(Device::Cpu)?;
///             let comm = Comm::new(&context, Transport::Threads, "docs", Some((rank, 3)), Duration::from_secs(60))?;
///             assert_eq!(comm.sum(rank as i64)?, 3);
///             let x = context.tensor(&[rank as f32], &[1])?;
///             comm.broadcast(&x, 2)?;
///             assert_eq!(x.item::<f32>()?, 2.0);
///             Ok(())
///         });
///     }
/// });
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Comm(Arc<Shared>);

/// What [`Comm::move_pieces`] moves: elements of a tensor, from a rank to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which elements.
    pub elements: Range<usize>,
    /// The rank that sends them.
    pub from: usize,
    /// The rank that receives them, to the same place.
    pub to: usize,
}

struct Shared {
    context: Context,
    handle: Handle<nncuda_comm>,
    rank: usize,
    ranks: usize,
    /// What sums that are under way read and write, the oldest first: it must not go before they have ended.
    under_way: Mutex<VecDeque<Vec<Tensor>>>,
    /// The same of rows that travel to experts and back: the address of `y`, and the tensors.
    travelling: Mutex<VecDeque<(usize, Vec<Tensor>)>>,
}

impl Comm {
    /// Joins a communicator; returns when all ranks have.
    ///
    /// `address` is a name under which ranks in threads meet, or, of NCCL, HOST:PORT of rank 0; else empty. `seat` is this
    /// rank and how many there are; without it MPI and NCCL take what the launcher says. After `timeout` without an answer
    /// a peer counts as lost; zero waits for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: when the transport is not there, a rank does not come in time, or the ranks differ in library, engine
    /// or instruction set.
    pub fn new(
        context: &Context,
        transport: Transport,
        address: &str,
        seat: Option<(usize, usize)>,
        timeout: Duration,
    ) -> Result<Self> {
        let (rank, ranks) = seat.map_or((-1, -1), |(rank, ranks)| (number(rank), number(ranks)));
        let milliseconds = i64::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i64::MAX);
        let (place, length) = words(address);
        let (turn, mut handle) = (context.turn(), ptr::null_mut());
        turn.release_waiting();
        // SAFETY: the context lives, `address` has `length` bytes, and `handle` may be written.
        let code = unsafe {
            (turn.functions().nncuda_comm_create)(
                turn.handle(),
                transport as i32,
                place,
                length,
                rank,
                ranks,
                milliseconds,
                &raw mut handle,
            )
        };
        turn.check("nncuda_comm_create", code)?;
        Self::of(&turn, handle)
    }

    /// A new communicator of the ranks that give the same `color`, in the order of `key`, then of their ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] while a graph is captured, and [`Status::Peer`](crate::Status::Peer). So has each function below.
    pub fn split(&self, color: u32, key: i64) -> Result<Self> {
        let (turn, mut handle) = (self.turn(), ptr::null_mut());
        // SAFETY: context and communicator live, and `handle` may be written.
        let code = unsafe {
            (turn.functions().nncuda_comm_split)(turn.handle(), self.pointer(), color.into(), key, &raw mut handle)
        };
        turn.check("nncuda_comm_split", code)?;
        Self::of(&turn, handle)
    }

    /// A new communicator of `count` ranks, `step` apart, from `first` on, of which this rank is one. Only they call it.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split), and [`Status::InvalidValue`](crate::Status::InvalidValue) when there are no such ranks, or
    /// this is none of them.
    pub fn part(&self, first: usize, step: usize, count: usize) -> Result<Self> {
        let (turn, mut handle) = (self.turn(), ptr::null_mut());
        // SAFETY: context and communicator live, and `handle` may be written.
        let code = unsafe {
            (turn.functions().nncuda_comm_part)(
                turn.handle(),
                self.pointer(),
                number(first),
                number(step),
                number(count),
                &raw mut handle,
            )
        };
        turn.check("nncuda_comm_part", code)?;
        Self::of(&turn, handle)
    }

    /// Owns what the library has made.
    fn of(turn: &Turn<'_>, handle: *mut nncuda_comm) -> Result<Self> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the context lives, the communicator is its own, and both numbers may be written.
        let code = unsafe { (turn.functions().nncuda_comm_rank)(turn.handle(), handle, &raw mut rank, &raw mut ranks) };
        turn.check("nncuda_comm_rank", code)?;
        // A success has a handle: of null the call before would have failed.
        let handle = Handle::new(handle).ok_or_else(|| Error::Value("there is no communicator".into()))?;
        let (rank, ranks) = (usize::try_from(rank).unwrap_or(0), usize::try_from(ranks).unwrap_or(1));
        let (context, under_way, travelling) = (turn.context().clone(), Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Shared { context, handle, rank, ranks, under_way, travelling })))
    }

    /// The context that it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Which rank this is.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.0.ranks
    }

    fn turn(&self) -> Turn<'_> {
        self.0.context.turn()
    }

    pub(crate) fn pointer(&self) -> *mut nncuda_comm {
        self.0.handle.as_ptr()
    }

    /// The tensors of sums that are under way.
    pub(crate) fn under_way(&self) -> MutexGuard<'_, VecDeque<Vec<Tensor>>> {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tensors of rows that travel.
    pub(crate) fn travelling(&self) -> MutexGuard<'_, VecDeque<(usize, Vec<Tensor>)>> {
        self.0.travelling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // On the host

    /// Tells the other ranks that this one cannot go on: what they do on the communicator, now or later, fails with
    /// [`Status::Peer`](crate::Status::Peer) and this reason.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the library refuses.
    pub fn abort(&self, reason: &str) -> Result<()> {
        let (turn, (text, length)) = (self.turn(), words(reason));
        // SAFETY: context and communicator live, and `reason` has `length` bytes.
        let code = unsafe { (turn.functions().nncuda_comm_abort)(turn.handle(), self.pointer(), text, length) };
        turn.check("nncuda_comm_abort", code)
    }

    /// Fails on all ranks unless all give the same bytes; the sentence says that `what` differs, and of which rank.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split).
    pub fn agree(&self, what: &str, value: impl AsRef<[u8]>) -> Result<()> {
        let (turn, (name, length), value) = (self.turn(), words(what), value.as_ref());
        // SAFETY: context and communicator live, and both texts have as many bytes as is said.
        let code = unsafe {
            (turn.functions().nncuda_comm_agree)(
                turn.handle(),
                self.pointer(),
                name,
                length,
                value.as_ptr().cast(),
                number(value.len()),
            )
        };
        turn.check("nncuda_comm_agree", code)
    }

    /// The sum of all ranks' values.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split), and when the sum has more than 64 bits.
    pub fn sum(&self, value: i64) -> Result<i64> {
        let (turn, mut total) = (self.turn(), 0);
        // SAFETY: context and communicator live, and `total` may be written.
        let code = unsafe { (turn.functions().nncuda_comm_sum)(turn.handle(), self.pointer(), value, &raw mut total) };
        turn.check("nncuda_comm_sum", code).map(|()| total)
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split).
    pub fn barrier(&self) -> Result<()> {
        let turn = self.turn();
        // SAFETY: context and communicator live.
        let code = unsafe { (turn.functions().nncuda_comm_barrier)(turn.handle(), self.pointer()) };
        turn.check("nncuda_comm_barrier", code)
    }

    /// Bytes that this rank gave the transport for other ranks so far.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when the library refuses.
    pub fn bytes_sent(&self) -> Result<u64> {
        let (turn, mut bytes) = (self.turn(), 0);
        // SAFETY: context and communicator live, and `bytes` may be written.
        let code = unsafe { (turn.functions().nncuda_comm_bytes_sent)(turn.handle(), self.pointer(), &raw mut bytes) };
        turn.check("nncuda_comm_bytes_sent", code).map(|()| u64::try_from(bytes).unwrap_or(0))
    }

    // On the device

    /// x of the rank `root` to all.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when a tensor is not dense, not of its dtype, or of another context, [`Error::Call`] when the
    /// library refuses, and [`Status::Peer`](crate::Status::Peer). So has each function below.
    pub fn broadcast(&self, x: &Tensor, root: usize) -> Result<()> {
        let call = self.call("nncuda_comm_broadcast");
        let x = call.dense::<1>("x", "[bytes]", x)?;
        // SAFETY: context and communicator live, and the tensor, which is of this context, has as many bytes.
        let code = unsafe {
            (call.functions().nncuda_comm_broadcast)(
                call.handle(),
                self.pointer(),
                x.pointer(),
                bytes(&x),
                number(root),
            )
        };
        self.finish(call, code, &[Some(x.tensor)])
    }

    /// Each rank's shard of x to all: [`shard`](crate::shard)`(x.len(), grain, ranks, rank)`.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn all_gather(&self, x: &Tensor, grain: usize) -> Result<()> {
        let call = self.call("nncuda_comm_all_gather");
        let x = call.dense::<1>("x", "[bytes]", x)?;
        let grain = number(grain.saturating_mul(x.dtype().size()));
        // SAFETY: as in `broadcast`.
        let code = unsafe {
            (call.functions().nncuda_comm_all_gather)(call.handle(), self.pointer(), x.pointer(), bytes(&x), grain)
        };
        self.finish(call, code, &[Some(x.tensor)])
    }

    /// x = the sum over the ranks of x f32, in their order: for few numbers of which at most one is not zero, since any
    /// other sum would know how many ranks there are.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn all_reduce(&self, x: &Tensor) -> Result<()> {
        let call = self.call("nncuda_comm_all_reduce");
        let x = call.dense::<1>("x", "[n]", x)?.of(DType::F32)?;
        // SAFETY: as in `broadcast`.
        let code = unsafe {
            (call.functions().nncuda_comm_all_reduce)(
                call.handle(),
                self.pointer(),
                x.pointer().cast(),
                number(x.dims[0]),
            )
        };
        self.finish(call, code, &[Some(x.tensor)])
    }

    /// Moves pieces of x between ranks, each to the same place. All ranks give the same pieces, in one order; each may leave
    /// out those that it neither sends nor receives.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn move_pieces(&self, x: &Tensor, pieces: &[Piece]) -> Result<()> {
        let call = self.call("nncuda_comm_move");
        let x = call.dense::<1>("x", "[bytes]", x)?;
        let place = |element: usize| number(element.saturating_mul(x.dtype().size()));
        let numbers = |piece: &Piece| {
            [place(piece.elements.start), place(piece.elements.end), number(piece.from), number(piece.to)]
        };
        let moves: Vec<_> = pieces.iter().map(numbers).collect();
        // SAFETY: as in `broadcast`, and there are as many moves as is said.
        let code = unsafe {
            (call.functions().nncuda_comm_move)(
                call.handle(),
                self.pointer(),
                x.pointer(),
                bytes(&x),
                moves.as_ptr().cast(),
                number(moves.len()),
            )
        };
        self.finish(call, code, &[Some(x.tensor)])
    }

    /// The norm f32 `[1]` of gradients f32 of which each rank has its shards: the bits of
    /// [`kernels::grad_norm`](crate::kernels::grad_norm) of all of them. All ranks give the same shards, which leave no gaps
    /// and are cut at multiples of 32768; elements of others need not be memory.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn grad_norm(&self, grad: &Tensor, norm: &Tensor, shards: &[Shard]) -> Result<()> {
        let call = self.call("nncuda_comm_grad_norm");
        let grad = call.dense::<1>("grad", "[n]", grad)?.of(DType::F32)?;
        let norm = call.dense::<1>("norm", "[1]", norm)?.of(DType::F32)?;
        norm.expect([1], Sizes { names: &[], values: &[] })?;
        let shards = rows(shards);
        // SAFETY: as in `broadcast`, of both tensors; and there are as many shards as is said.
        let code = unsafe {
            (call.functions().nncuda_comm_grad_norm)(
                call.handle(),
                self.pointer(),
                grad.pointer().cast(),
                norm.pointer().cast(),
                number(grad.dims[0]),
                shards.as_ptr().cast(),
                number(shards.len()),
            )
        };
        self.finish(call, code, &[Some(grad.tensor), Some(norm.tensor)])
    }

    pub(crate) fn call<'t>(&'t self, function: &'static str) -> Call<'t> {
        Call::on(function, &self.0.context)
    }

    /// As [`Call::finish`]; a capture in progress keeps the communicator, too.
    pub(crate) fn finish(&self, call: Call<'_>, code: i32, tensors: &[Option<&Tensor>]) -> Result<()> {
        call.finish(code, tensors)?;
        self.turn().keep_comm(self);
        Ok(())
    }
}

/// A text as the library takes it.
fn words(text: &str) -> (*const c_char, i64) {
    (text.as_ptr().cast(), number(text.len()))
}

/// A count as the library takes it; what does not fit is refused there.
pub(crate) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn bytes(x: &Operand<'_, 1>) -> i64 {
    number(x.dims[0].saturating_mul(x.dtype().size()))
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.context.release(Released::Comm(self.handle));
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comm").field("rank", &self.rank()).field("ranks", &self.ranks()).finish_non_exhaustive()
    }
}
