//! Sums over the replicas of a job, each to the rank of its shard: at once, or in two halves with other work between.

use crate::call::{Call, Operand, Sizes, pointer, tensor};
use crate::comm::number;
use crate::shards::rows;
use crate::{Comm, DType, Result, Shard, Tensor};

/// What is summed up, whose sizes agree.
struct Sums<'t> {
    partials: Option<Operand<'t, 2>>,
    x: Operand<'t, 1>,
    shards: Vec<[i64; 3]>,
}

impl<'t> Sums<'t> {
    fn new(call: &Call<'t>, partials: Option<&'t Tensor>, x: &'t Tensor, shards: &[Shard]) -> Result<Self> {
        const SIZES: [(&str, &str); 1] = [("n", "from x")];
        let x = call.dense::<1>("x", "[n]", x)?.of(DType::F32)?;
        let partials =
            partials.map(|partials| call.dense::<2>("partials", "[parts, n]", partials)?.of(DType::F32)).transpose()?;
        if let Some(partials) = &partials {
            partials.expect([partials.dims[0], x.dims[0]], Sizes { names: &SIZES, values: &x.dims })?;
        }
        Ok(Self { partials, x, shards: rows(shards) })
    }

    /// Elements, and sums aside.
    fn sizes(&self) -> [i64; 2] {
        [self.x.dims[0], self.partials.as_ref().map_or(0, |partials| partials.dims[0])].map(number)
    }

    fn tensors(&self) -> [Option<&Tensor>; 2] {
        [tensor(&self.partials), Some(self.x.tensor)]
    }
}

impl Comm {
    /// Sums over all `replicas` of x f32 `[n]`: those of a shard come to its rank, in x; the rest of x stays. `partials` f32
    /// `[parts, n]` are the sums that [`replica_merges`](crate::replica_merges) left aside on this rank, the oldest first,
    /// and x the last. All ranks give the same shards, in ascending order; elements of none need not even be memory.
    ///
    /// `wire` is what sums travel in: f32, or f16 or bf16, to which all that is given is rounded, and so is what is added up,
    /// but for the sum over all replicas.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn reduce_scatter(
        &self,
        partials: Option<&Tensor>,
        x: &Tensor,
        replicas: usize,
        shards: &[Shard],
        wire: DType,
    ) -> Result<()> {
        let call = self.call("nncuda_comm_reduce_scatter");
        let sums = Sums::new(&call, partials, x, shards)?;
        let [n, parts] = sums.sizes();
        // SAFETY: as in `broadcast`, of both tensors, whose sizes agree; and there are as many shards as is said.
        let code = unsafe {
            (call.functions().nncuda_comm_reduce_scatter)(
                call.handle(),
                self.pointer(),
                pointer(&sums.partials).cast(),
                sums.x.pointer().cast(),
                n,
                parts,
                number(replicas),
                sums.shards.as_ptr().cast(),
                number(sums.shards.len()),
                wire.code(),
            )
        };
        self.finish(call, code, &sums.tensors())
    }

    /// Elements of f32 that [`reduce_scatter_begin`](Self::reduce_scatter_begin) of these arguments needs for what arrives.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn reduce_scatter_room(
        &self,
        partials: Option<&Tensor>,
        x: &Tensor,
        replicas: usize,
        shards: &[Shard],
        wire: DType,
    ) -> Result<usize> {
        let call = self.call("nncuda_comm_reduce_scatter_room");
        let sums = Sums::new(&call, partials, x, shards)?;
        let ([n, parts], mut size) = (sums.sizes(), 0);
        // SAFETY: context and communicator live, there are as many shards as is said, and `size` may be written.
        let code = unsafe {
            (call.functions().nncuda_comm_reduce_scatter_room)(
                call.handle(),
                self.pointer(),
                n,
                parts,
                number(replicas),
                sums.shards.as_ptr().cast(),
                number(sums.shards.len()),
                wire.code(),
                &raw mut size,
            )
        };
        call.finish(code, &[])?;
        Ok(usize::try_from(size).unwrap_or(0))
    }

    /// The first half of [`reduce_scatter`](Self::reduce_scatter): sends what travels, beside what the context does from now
    /// on. The second half is [`reduce_scatter_end`](Self::reduce_scatter_end) of the same arguments; until then the elements
    /// of shards, in x and `partials`, and `room` belong to the sums. `room` is f32 of at least
    /// [`reduce_scatter_room`](Self::reduce_scatter_room) elements.
    ///
    /// Several may be under way, each with a room of its own; they end in the order in which they began. Nothing else is done
    /// on this communicator meanwhile.
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast).
    pub fn reduce_scatter_begin(
        &self,
        partials: Option<&Tensor>,
        x: &Tensor,
        replicas: usize,
        shards: &[Shard],
        wire: DType,
        room: &Tensor,
    ) -> Result<()> {
        let call = self.call("nncuda_comm_reduce_scatter_begin");
        let sums = Sums::new(&call, partials, x, shards)?;
        let room = call.dense::<1>("room", "[room_size]", room)?.of(DType::F32)?;
        let [n, parts] = sums.sizes();
        // SAFETY: context and communicator live; the tensors, which are of this context, have as many elements as is said,
        // and there are as many shards. The communicator keeps the tensors until the sums have ended.
        let code = unsafe {
            (call.functions().nncuda_comm_reduce_scatter_begin)(
                call.handle(),
                self.pointer(),
                pointer(&sums.partials).cast(),
                sums.x.pointer().cast(),
                n,
                parts,
                number(replicas),
                sums.shards.as_ptr().cast(),
                number(sums.shards.len()),
                wire.code(),
                room.pointer().cast(),
                number(room.dims[0]),
            )
        };
        let [partials, x] = sums.tensors();
        self.finish(call, code, &[partials, x, Some(room.tensor)])?;
        self.under_way().push_back([partials, x, Some(room.tensor)].into_iter().flatten().cloned().collect());
        Ok(())
    }

    /// The second half: waits for what travels, in the order of the stream, and adds it up, so that x is as after
    /// [`reduce_scatter`](Self::reduce_scatter).
    ///
    /// # Errors
    ///
    /// As [`broadcast`](Self::broadcast), and [`Status::State`](crate::Status::State) when none is under way.
    pub fn reduce_scatter_end(
        &self,
        partials: Option<&Tensor>,
        x: &Tensor,
        replicas: usize,
        shards: &[Shard],
        wire: DType,
        room: &Tensor,
    ) -> Result<()> {
        let call = self.call("nncuda_comm_reduce_scatter_end");
        let sums = Sums::new(&call, partials, x, shards)?;
        let room = call.dense::<1>("room", "[room_size]", room)?.of(DType::F32)?;
        let [n, parts] = sums.sizes();
        // SAFETY: as in `reduce_scatter_begin`.
        let code = unsafe {
            (call.functions().nncuda_comm_reduce_scatter_end)(
                call.handle(),
                self.pointer(),
                pointer(&sums.partials).cast(),
                sums.x.pointer().cast(),
                n,
                parts,
                number(replicas),
                sums.shards.as_ptr().cast(),
                number(sums.shards.len()),
                wire.code(),
                room.pointer().cast(),
                number(room.dims[0]),
            )
        };
        let [partials, x] = sums.tensors();
        self.finish(call, code, &[partials, x, Some(room.tensor)])?;
        self.under_way().pop_front();
        Ok(())
    }
}
