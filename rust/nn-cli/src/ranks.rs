//! The ranks of a command: how it finds the others.

use std::time::Duration;

use clap::Args;
use nn_ffi::{Comm, Context, Device, Result, Transport};

/// How ranks find each other, and which of them talk.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct RankFlags {
    /// How ranks reach each other; auto: mpi if mpiexec started this, nccl if RANK and WORLD_SIZE are set and the device is a
    /// GPU, else there is one rank.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "self", "mpi", "nccl"])]
    transport: String,
    /// Seconds without an answer after which a rank counts as lost; 0 waits for ever.
    #[arg(long, value_name = "FLOAT", default_value = "600", value_parser = seconds)]
    peer_timeout: Duration,
    /// So many neighbouring ranks share the experts out, each holding as many; it must divide both numbers.
    #[arg(long, value_name = "INTEGER", default_value_t = 1)]
    pub(crate) expert_parallel: usize,
    /// Other ranks than the first tell their steps, too, on standard error.
    #[arg(long)]
    pub(crate) log_ranks: bool,
}

impl RankFlags {
    /// The communicator of the ranks that were started with this one, or of this one alone.
    pub(crate) fn open(&self, ctx: &Context) -> Result<Comm> {
        let transport = match &*self.transport {
            "self" => Transport::Alone,
            "mpi" => Transport::Mpi,
            "nccl" => Transport::Nccl,
            _ => Transport::Auto,
        };
        Comm::new(ctx, transport, "", None, self.peer_timeout)
    }
}

/// Tells the ranks that mpiexec started with this one why it cannot begin: MPI would let them wait for it for ever.
pub(crate) fn cannot_begin(reason: &str) {
    let joined = Context::new(Device::Cpu).and_then(|ctx| {
        ctx.set_threads(1)?;
        Comm::new(&ctx, Transport::Auto, "", None, Duration::from_secs(60))
    });
    if let Ok(comm) = joined {
        let _ = comm.abort(reason); // whoever does not hear it finds out by the time-out
    }
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e9).contains(number));
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("'{text}' is not a number from 0 to 1e9"))
}
