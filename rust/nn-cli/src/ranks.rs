//! The ranks of a command: how it finds the others.

use std::env;
use std::time::Duration;

use clap::Args;
use nn_ffi::{Comm, Context, Device, Result, Transport};

/// What launchers of MPI tell a process of its rank by: MPICH and what speaks PMI, SLURM's PMIx, Open MPI.
const OF_MPI: [&str; 3] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"];
/// What torchrun and its like tell: NCCL's rendezvous takes the same.
const OF_NCCL: [&str; 2] = ["RANK", "WORLD_SIZE"];

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
    /// Other ranks than the first tell their steps, too, on standard error.
    #[arg(long)]
    pub(crate) log_ranks: bool,
}

impl RankFlags {
    /// The communicator of the ranks that were started with this one; `None` where there are none.
    pub(crate) fn open(&self, ctx: &Context) -> Result<Option<Comm>> {
        let told = |name: &&str| env::var_os(name).is_some();
        let transport = match &*self.transport {
            "self" => Transport::Alone,
            "mpi" => Transport::Mpi,
            "nccl" => Transport::Nccl,
            // First, since torchrun may itself run under srun.
            _ if ctx.device() != Device::Cpu && OF_NCCL.iter().all(told) => Transport::Nccl,
            _ if OF_MPI.iter().any(told) => Transport::Mpi,
            _ => return Ok(None),
        };
        Comm::new(ctx, transport, "", None, self.peer_timeout).map(Some)
    }
}

/// Tells the ranks that mpiexec started with this one why it cannot begin: MPI would let them wait for it for ever.
pub(crate) fn cannot_begin(reason: &str) {
    if !OF_MPI.iter().any(|name| env::var_os(name).is_some()) {
        return;
    }
    let joined = Context::new(Device::Cpu).and_then(|ctx| {
        ctx.set_threads(1)?;
        Comm::new(&ctx, Transport::Mpi, "", None, Duration::from_secs(60))
    });
    if let Ok(comm) = joined {
        let _ = comm.abort(reason); // whoever does not hear it finds out by the time-out
    }
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e9).contains(number));
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("'{text}' is not a number from 0 to 1e9"))
}
