//! How the work of a job is shared out over its ranks.

use std::ops::Range;
use std::ptr;

use crate::Result;
use crate::comm::number;
use crate::library::without_context;

/// Elements of an arena that one rank updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which they are.
    pub elements: Range<usize>,
    /// The rank.
    pub rank: usize,
}

/// Cuts `count` elements into `parts` neighbouring shards of whole grains, as equal as that allows, and gives the one number
/// `part`; the last grain may be shorter.
///
/// # Errors
///
/// [`Status::InvalidValue`](crate::Status::InvalidValue) when `grain` or `parts` is 0, or `part` not below `parts`.
pub fn shard(count: usize, grain: usize, parts: usize, part: usize) -> Result<Range<usize>> {
    let library = nn_cuda::library()?;
    let (mut begin, mut end) = (0, 0);
    // SAFETY: both numbers may be written.
    let code = unsafe {
        (library.nncuda_shard)(number(count), number(grain), number(parts), number(part), &raw mut begin, &raw mut end)
    };
    without_context(library, "nncuda_shard", code)?;
    Ok(usize::try_from(begin).unwrap_or(0)..usize::try_from(end).unwrap_or(0))
}

/// Which of `ranks` updates which of `count` elements, of which `group` neighbouring ranks hold the experts together: the
/// ranks q, q + group, ... part q of each stack in `experts`, elements in ascending order that `group` divides. Shards are
/// cut at multiples of `grain`; whole grains of such a part go to the ranks that hold it, all others to all ranks. They come
/// in ascending order, without gaps. With a group of 1 they are those of [`shard`].
///
/// # Errors
///
/// [`Status::InvalidValue`](crate::Status::InvalidValue) when a number is 0, or `group` does not divide the ranks or a stack.
pub fn expert_shards(
    count: usize,
    grain: usize,
    ranks: usize,
    group: usize,
    experts: &[Range<usize>],
) -> Result<Vec<Shard>> {
    let library = nn_cuda::library()?;
    let stacks: Vec<_> = experts.iter().map(|stack| [number(stack.start), number(stack.end)]).collect();
    let mut found = 0;
    let mut ask = |shards: *mut i64, capacity| {
        // SAFETY: there are as many stacks as is said, and as many shards as `capacity` says may be written, and `found`.
        let code = unsafe {
            (library.nncuda_expert_shards)(
                number(count),
                number(grain),
                number(ranks),
                number(group),
                stacks.as_ptr().cast(),
                number(stacks.len()),
                shards,
                capacity,
                &raw mut found,
            )
        };
        without_context(library, "nncuda_expert_shards", code).map(|()| found)
    };
    let capacity = ask(ptr::null_mut(), 0)?;
    let mut rows = vec![[0_i64; 3]; usize::try_from(capacity).unwrap_or(0)];
    ask(rows.as_mut_ptr().cast(), capacity)?;
    let place = |value: i64| usize::try_from(value).unwrap_or(0);
    Ok(rows
        .into_iter()
        .map(|row| row.map(place))
        .map(|[start, end, rank]| Shard { elements: start..end, rank })
        .collect())
}

/// How many of the sums that were put aside are added to the gradient of `replica`, the newest first, on a rank that
/// computes replicas from `first` on; the result is put aside in turn. So added, the gradients of all replicas have a sum
/// whose bits do not know how many ranks there are.
///
/// # Errors
///
/// [`Status::InvalidValue`](crate::Status::InvalidValue) when `first` is not below `replicas`, or `replica` is not one from `first` on.
pub fn replica_merges(replicas: usize, first: usize, replica: usize) -> Result<usize> {
    let library = nn_cuda::library()?;
    let mut merges = 0;
    // SAFETY: `merges` may be written.
    let code =
        unsafe { (library.nncuda_replica_merges)(number(replicas), number(first), number(replica), &raw mut merges) };
    without_context(library, "nncuda_replica_merges", code)?;
    Ok(usize::try_from(merges).unwrap_or(0))
}

/// Shards as the library takes them.
pub(crate) fn rows(shards: &[Shard]) -> Vec<[i64; 3]> {
    let row = |Shard { elements, rank }: &Shard| [number(elements.start), number(elements.end), number(*rank)];
    shards.iter().map(row).collect()
}
