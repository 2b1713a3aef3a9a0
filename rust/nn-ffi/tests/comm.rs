//! Communicators: what Rust adds to the library's, whose own tests are in tests/comm.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use nn_ffi::{
    Comm, Context, DType, Device, Error, ExpertEvent, Piece, Result, Shard, Status, Transport, expert_schedule,
    expert_shards, kernels, replica_merges, shard,
};

/// Threads are ranks on the CPU alone.
fn context() -> Context {
    Context::open(Device::Cpu, Some(2), None).unwrap_or_else(|error| panic!("{error}"))
}

fn join(context: &Context, name: &str, rank: usize, ranks: usize) -> Result<Comm> {
    Comm::new(context, Transport::Threads, name, Some((rank, ranks)), Duration::from_secs(60))
}

/// What `work` gives on each rank.
fn job<T: Send>(name: &str, ranks: usize, work: impl Fn(&Comm) -> Result<T> + Sync) -> Vec<Result<T>> {
    let work = &work;
    thread::scope(|scope| {
        let of_rank = |rank| scope.spawn(move || work(&join(&context(), name, rank, ranks)?));
        let threads: Vec<_> = (0..ranks).map(of_rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

#[test]
fn collectives_give_what_one_rank_computes() {
    const N: usize = 100_000;
    const GRAIN: usize = 32768;
    let gradient = |context: &Context, replica: i64| {
        let x = context.empty(&[N], DType::F32)?;
        kernels::normal(&x, 0.0, 1.0, 7, replica, 0).map(|()| x)
    };
    let wanted = || -> Result<_> {
        let context = context();
        let [x, y, z] = [gradient(&context, 0)?, gradient(&context, 1)?, gradient(&context, 2)?];
        kernels::add(&x, &y, &x)?;
        kernels::add(&x, &z, &x)?;
        let norm = context.empty(&[1], DType::F32)?;
        kernels::grad_norm(&x, &norm)?;
        Ok((x.to_vec::<f32>()?, norm.item::<f32>()?))
    };
    let (sum, norm) = wanted().unwrap();
    let found = job("collectives", 2, |comm| {
        let context = comm.context();
        let own = shard(3, 1, comm.ranks(), comm.rank())?;
        assert_eq!(replica_merges(3, own.start, own.end - 1)?, 0, "replicas 1 and 2 belong to different halves");
        let x = gradient(context, own.end as i64 - 1)?;
        let partials = (own.len() > 1).then(|| gradient(context, own.start as i64)?.view(&[1, N])).transpose()?;
        let norm = context.empty(&[1], DType::F32)?;
        let before = x.to_vec::<f32>()?;
        let shards = expert_shards(N, GRAIN, comm.ranks(), 1, &[])?;
        // Captured, and run twice: the second time from the same state.
        let graph = context.capture(|| {
            comm.reduce_scatter(partials.as_ref(), &x, 3, &shards, DType::F32)?;
            comm.grad_norm(&x, &norm, &shards)?;
            comm.all_gather(&x, GRAIN)
        })?;
        graph.launch()?;
        x.copy_from_slice(&before)?;
        graph.launch()?;
        let number = context.tensor(&[if comm.rank() == 1 { 2.5_f32 } else { 0.0 }], &[1])?;
        comm.all_reduce(&number)?;
        let name = context.tensor(&[comm.rank() as i32], &[1])?;
        comm.broadcast(&name, 1)?;
        assert_eq!((number.item::<f32>()?, name.item::<i32>()?, comm.sum(5)?), (2.5, 1, 10));
        assert!(comm.bytes_sent()? > 0);
        let alone = comm.split(u32::try_from(comm.rank()).unwrap_or(0), 0)?;
        assert_eq!((alone.rank(), alone.ranks()), (0, 1));
        Ok((x.to_vec::<f32>()?, norm.item::<f32>()?))
    });
    for of_rank in found {
        let (of_rank, norm_of_rank) = of_rank.unwrap();
        assert!(of_rank.iter().zip(&sum).all(|(one, other)| one.to_bits() == other.to_bits()));
        assert_eq!(norm_of_rank.to_bits(), norm.to_bits());
    }
}

#[test]
fn pieces_move_between_parts_of_a_job() {
    const N: usize = 1 << 20;
    let found = job("pieces", 4, |comm| {
        let (context, rank) = (comm.context(), comm.rank());
        let pair = comm.part(rank / 2 * 2, 1, 2)?;
        assert_eq!((pair.rank(), pair.ranks()), (rank % 2, 2));
        assert_eq!(pair.sum(rank as i64)?, rank as i64 / 2 * 4 + 1);
        assert_eq!(comm.part(rank, 2, 3).unwrap_err().status(), Some(Status::InvalidValue));
        // The middle alone is memory, and the sum of its first half.
        let x = context.zeros_parts(&[N], DType::F32, std::slice::from_ref(&(N / 4..N / 2)))?;
        assert!(context.zeros_parts(&[N], DType::F32, &[4..8, 7..9]).is_err());
        let middle = x.narrow(0, N / 4, N / 4)?;
        kernels::fill(&middle, rank as f32)?;
        pair.reduce_scatter(None, &x, 2, &[Shard { elements: N / 4..3 * N / 8, rank: 0 }], DType::F32)?;
        let pieces = [
            Piece { elements: N / 4..N / 4 + 2, from: 0, to: 1 },
            Piece { elements: N / 2 - 1..N / 2, from: 1, to: 0 },
        ];
        pair.move_pieces(&x, &pieces)?;
        let last = middle.to_vec::<f32>()?;
        Ok([last[0], last[1], last[2], last[N / 4 - 1]])
    });
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(found, [[1., 1., 1., 1.], [1., 1., 1., 1.], [5., 5., 5., 3.], [5., 5., 3., 3.]]);
}

#[test]
fn a_graph_keeps_its_communicator() {
    let found = job("kept", 2, |comm| {
        let context = context();
        let (graph, x) = {
            let inner = join(&context, "kept inside", comm.rank(), 2)?;
            let x = context.tensor(&[comm.rank() as f32], &[1])?;
            (context.capture(|| inner.broadcast(&x, 1))?, x)
        };
        comm.barrier()?;
        graph.launch()?; // the communicator has no other owner
        x.item::<f32>()
    });
    assert!(found.into_iter().all(|value| value.unwrap() == 1.0));
}

#[test]
fn a_rank_says_why_it_cannot_go_on() {
    let joined = Barrier::new(3); // else joining may be what fails
    let errors = job("aborted", 3, |comm| {
        joined.wait();
        if comm.rank() == 1 {
            return comm.abort("the disk is full");
        }
        comm.barrier()
    });
    for error in [&errors[0], &errors[2]].map(|found| found.as_ref().unwrap_err()) {
        assert_eq!(error.status(), Some(Status::Peer));
        assert!(error.to_string().contains("rank 1: the disk is full"), "{error}");
    }
    let errors = job("unlike", 2, |comm| comm.agree("seed", comm.rank().to_string()));
    for error in errors.into_iter().map(Result::unwrap_err) {
        assert!(error.to_string().contains("the seed of rank 1 (1) is not that of rank 0 (0)"), "{error}");
    }
}

#[test]
fn wrong_tensors_are_refused_before_anything_is_sent() {
    let (context, other) = (context(), context());
    let comm = Comm::new(&context, Transport::Alone, "", None, Duration::ZERO).unwrap();
    assert_eq!((comm.rank(), comm.ranks()), (0, 1));
    let (x, whole) = (context.zeros(&[8], DType::F32).unwrap(), context.zeros(&[8], DType::I32).unwrap());
    let foreign = other.zeros(&[8], DType::F32).unwrap();
    let all = [Shard { elements: 0..8, rank: 0 }];
    let rows = context.zeros(&[3, 4], DType::F32).unwrap().narrow(1, 0, 2).unwrap();
    let refused = [
        (comm.all_reduce(&whole), "x is i32; it must be f32"),
        (comm.broadcast(&foreign, 0), "x is of another context"),
        (comm.all_gather(&rows, 1), "x must be dense"),
        (comm.reduce_scatter(Some(&x.view(&[2, 4]).unwrap()), &x, 1, &all, DType::F32), "partials has shape [2, 4]"),
        (comm.grad_norm(&x, &x, &all), "norm has shape [8]"),
    ];
    for (found, words) in refused {
        let error = found.unwrap_err();
        assert!(matches!(error, Error::Shape { .. }) && error.to_string().contains(words), "{error}");
    }
    assert_eq!(comm.reduce_scatter(None, &x, 1, &all, DType::I32).unwrap_err().status(), Some(Status::InvalidDtype));
    let gap = [Shard { elements: 4..8, rank: 0 }];
    let refused = comm.grad_norm(&x, &x.narrow(0, 0, 1).unwrap(), &gap).unwrap_err();
    assert_eq!(refused.status(), Some(Status::InvalidValue), "{refused}");
    assert_eq!(shard(10, 4, 2, 1).unwrap(), 4..10);
    assert_eq!(shard(10, 0, 2, 1).unwrap_err().status(), Some(Status::InvalidValue));
    assert_eq!(replica_merges(4, 0, 3).unwrap(), 2);
}

#[test]
fn whole_grains_of_experts_go_to_the_ranks_that_hold_them() {
    let of = |elements, rank| Shard { elements, rank };
    // Of two stacks of 12 and 8 elements the even ranks hold the first halves.
    let found = expert_shards(32, 2, 4, 2, &[3..15, 20..28]).unwrap();
    assert!(found.windows(2).all(|pair| pair[0].elements.end == pair[1].elements.start), "{found:?}");
    assert_eq!((found[0].elements.start, found[found.len() - 1].elements.end), (0, 32));
    for (grains, position) in [(4..8, 0), (10..14, 1), (20..24, 0), (24..28, 1)] {
        for element in grains {
            let of_element = found.iter().find(|one| one.elements.contains(&element)).unwrap();
            assert_eq!(of_element.rank % 2, position, "{element}: {found:?}");
        }
    }
    assert_eq!(expert_shards(10, 4, 2, 1, &[]).unwrap(), [of(0..4, 0), of(4..10, 1)]);
    let refused = expert_shards(32, 2, 4, 3, &[]).unwrap_err();
    assert_eq!(refused.status(), Some(Status::InvalidValue));
}

#[test]
fn sums_travel_in_sixteen_bits() {
    let found = job("sixteen bits", 2, |comm| {
        let x = comm.context().tensor(&[1.0 + 1.0 / 512.0, -3.0, 1.0 / 3.0, 7.5_f32], &[4])?;
        let shards = [Shard { elements: 0..2, rank: 0 }, Shard { elements: 2..4, rank: 1 }];
        let before = comm.bytes_sent()?;
        comm.reduce_scatter(None, &x, 2, &shards, DType::BF16)?;
        let sum = x.to_vec::<f32>()?[2 * comm.rank()..][..2].to_vec();
        Ok((sum, comm.bytes_sent()? - before))
    });
    let [first, second] = <[_; 2]>::try_from(found.into_iter().map(Result::unwrap).collect::<Vec<_>>()).unwrap();
    assert_eq!((first.0, second.0), (vec![2.0, -6.0], vec![171.0 / 256.0, 15.0]));
    assert_eq!((first.1, second.1), (4, 4));
}

/// Two at a time, captured and replayed with other numbers, while the context computes: the bits of sums that are waited for.
#[test]
fn sums_travel_beside_other_work() {
    const N: usize = 3000;
    for (name, wire) in [("beside in f32", DType::F32), ("beside in bf16", DType::BF16)] {
        let found = job(name, 3, |comm| {
            let context = comm.context();
            let part = comm.part(0, 1, 3)?;
            let own = shard(5, 1, 3, comm.rank())?;
            let partials = (own.len() > 1).then(|| context.zeros(&[1, N], DType::F32)).transpose()?;
            let (x, waited) = (context.zeros(&[N], DType::F32)?, context.zeros(&[N], DType::F32)?);
            let piece = |range: Range<usize>| -> Vec<Shard> {
                let shard = |at| Shard { elements: at..range.end.min(at + 64), rank: at / 64 % 3 };
                range.clone().step_by(64).map(shard).collect()
            };
            let pieces: Vec<_> = [2000..N, 900..2000, 0..900].map(piece).into();
            let sums = partials.as_ref();
            let room = |shards: &Vec<Shard>| {
                context.empty(&[part.reduce_scatter_room(sums, &x, 5, shards, wire)?], DType::F32)
            };
            let rooms: Vec<_> = pieces.iter().map(room).collect::<Result<_>>()?;
            let begin = |at: usize| part.reduce_scatter_begin(sums, &x, 5, &pieces[at], wire, &rooms[at]);
            let end = |at: usize| part.reduce_scatter_end(sums, &x, 5, &pieces[at], wire, &rooms[at]);
            let graph = context.capture(|| {
                begin(0)?;
                begin(1)?;
                let rest = x.narrow(0, 0, 900)?;
                kernels::add(&rest, &rest, &rest)?;
                end(0)?;
                begin(2)?;
                end(1)?;
                end(2)
            })?;
            let before = comm.bytes_sent()?;
            for step in 0..3 {
                for (of_replica, tensor) in (own.start as i64..).zip(partials.iter().chain([&x])) {
                    kernels::normal(tensor, 0.0, 1.0, 7, of_replica, step)?;
                }
                waited.copy_from(&x)?;
                let rest = waited.narrow(0, 0, 900)?;
                kernels::add(&rest, &rest, &rest)?;
                graph.launch()?;
                let all: Vec<_> = pieces.iter().rev().flatten().cloned().collect();
                comm.reduce_scatter(sums, &waited, 5, &all, wire)?;
                let [found, wanted] = [&x, &waited].map(|tensor| {
                    tensor.to_vec::<f32>().map(|all| all.into_iter().map(f32::to_bits).collect::<Vec<_>>())
                });
                assert!(found? == wanted?, "rank {}, step {step}", comm.rank());
            }
            assert_eq!(part.bytes_sent()?, comm.bytes_sent()? - before);
            let errors = [end(0), part.reduce_scatter_begin(sums, &x, 5, &pieces[0], wire, &rooms[0].narrow(0, 1, 8)?)];
            Ok(errors.map(|error| error.unwrap_err().to_string()))
        });
        for errors in found.into_iter().map(Result::unwrap) {
            assert!(errors[0].contains("no exchange of this communicator is under way"), "{}", errors[0]);
            assert!(errors[1].contains("room_size is 8; these sums need"), "{}", errors[1]);
        }
    }
}

#[test]
fn rows_travel_to_their_experts_and_back() {
    // Two ranks have two experts each. Rank 1 has no rows of its own.
    let found = job("rows", 2, |comm| {
        let context = comm.context();
        let x = context.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[4, 1])?;
        let offsets = context.tensor(&[0_i32, 1, 1, 3, 4], &[5])?;
        let own = (comm.rank() == 0).then_some((&x, &offsets));
        let (y, y_offsets) = (context.zeros(&[2, 4, 1], DType::F32)?, context.zeros(&[2, 3], DType::I32)?);
        comm.dispatch(own, &y, &y_offsets)?;
        let arrived = (y.to_vec::<f32>()?, y_offsets.to_vec::<i32>()?);
        if comm.rank() == 1 {
            y.copy_from_slice(&[20.0_f32, 30.0, 40.0, 0.0, 0.0, 0.0, 0.0, 0.0])?;
        }
        comm.collect(&y, &y_offsets, own)?;
        Ok((arrived, x.to_vec::<f32>()?))
    });
    let [first, second] = <[_; 2]>::try_from(found.into_iter().map(Result::unwrap).collect::<Vec<_>>()).unwrap();
    assert_eq!(first.0, (vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], vec![0, 1, 1, 0, 0, 0]));
    assert_eq!(second.0, (vec![2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0], vec![0, 2, 3, 0, 0, 0]));
    assert_eq!(first.1, [1.0, 20.0, 30.0, 40.0]);
}

#[test]
fn rows_travel_beside_other_work() {
    // The same rows, twice at once; they come back times ten.
    let found = job("begun-rows", 2, |comm| {
        let (context, rank) = (comm.context(), comm.rank());
        let x = context.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[4, 1])?;
        let offsets = context.tensor(&[0_i32, 1, 1, 3, 4], &[5])?;
        let own = (rank == 0).then_some((&x, &offsets));
        let (y, again) = (context.zeros(&[2, 4, 1], DType::F32)?, context.zeros(&[2, 4, 1], DType::F32)?);
        let y_offsets = context.zeros(&[2, 3], DType::I32)?;
        let idle = comm.dispatch_end(&y, 0).unwrap_err().status();
        comm.dispatch_begin(own, &y, &y_offsets, false)?;
        comm.dispatch_begin(own, &again, &y_offsets, true)?;
        let busy = comm.dispatch_begin(own, &y, &y_offsets, false).unwrap_err().status();
        comm.dispatch_end(&again, 1 - rank)?;
        assert_eq!(y.to_vec::<f32>()?, again.to_vec::<f32>()?);
        let flat = again.view(&[8])?;
        kernels::scale(&flat, &flat, 10.0)?;
        comm.collect_begin(&again, own.map(|(x, _)| x), 1 - rank)?;
        comm.collect_end(&again, own.map(|(x, _)| x))?;
        Ok((x.to_vec::<f32>()?, y_offsets.to_vec::<i32>()?, [idle, busy]))
    });
    let [first, second] = <[_; 2]>::try_from(found.into_iter().map(Result::unwrap).collect::<Vec<_>>()).unwrap();
    assert_eq!((first.0, first.1), (vec![10.0, 20.0, 30.0, 40.0], vec![0, 1, 1, 0, 0, 0]));
    assert_eq!(second.1, [0, 2, 3, 0, 0, 0]);
    assert_eq!([first.2, second.2], [[Some(Status::State); 2]; 2]);
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let context = context();
    let comm = Comm::new(&context, Transport::Alone, "", None, Duration::ZERO).unwrap();
    let zeros = |shape: &[usize], dtype| context.zeros(shape, dtype).unwrap();
    let (x, offsets) = (zeros(&[4, 3], DType::F32), zeros(&[3], DType::I32));
    let (y, y_offsets) = (zeros(&[1, 4, 3], DType::F32), zeros(&[1, 3], DType::I32));
    comm.dispatch(Some((&x, &offsets)), &y, &y_offsets).unwrap();
    let refused = [
        (comm.dispatch(Some((&x, &offsets)), &zeros(&[2, 4, 3], DType::F32), &y_offsets), "y has shape [2, 4, 3]"),
        (comm.dispatch(Some((&x, &offsets)), &y, &zeros(&[2, 3], DType::I32)), "y_offsets has shape [2, 3]"),
        (comm.collect(&y, &zeros(&[1, 3], DType::F32), Some((&x, &offsets))), "y_offsets is f32; it must be i32"),
        (comm.collect(&y, &y_offsets, Some((&zeros(&[4, 2], DType::F32), &offsets))), "x has shape [4, 2]"),
        (comm.collect(&y, &y_offsets, Some((&zeros(&[4, 3], DType::BF16), &offsets))), "x is bf16; y is f32"),
        (comm.dispatch(Some((&x, &zeros(&[4], DType::I32))), &y, &y_offsets), "offsets has shape [4]"),
    ];
    for (found, words) in refused {
        let error = found.unwrap_err();
        assert!(matches!(error, Error::Shape { .. }) && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_gradients_of_experts_are_added_in_the_order_of_the_tree() {
    let run = |round, source, micro_batch, slot, accumulate| ExpertEvent::Run {
        round,
        source,
        micro_batch,
        slot,
        accumulate,
    };
    let (events, slots) = expert_schedule(3, 3, 0, 3, 4, None).unwrap();
    let wanted = [
        run(0, 0, 0, 0, false),
        run(0, 1, 1, 1, false),
        ExpertEvent::Round { round: 0, slot: 1 },
        run(0, 2, 2, 2, false),
        ExpertEvent::Round { round: 0, slot: 2 },
        run(1, 0, 3, 0, true),
        ExpertEvent::Round { round: 1, slot: 0 },
        ExpertEvent::Add { round: 1, slot: 0, other: 1 },
        ExpertEvent::Round { round: 1, slot: 0 },
        ExpertEvent::Add { round: 1, slot: 0, other: 2 },
    ];
    assert_eq!((events.as_slice(), slots), (wanted.as_slice(), 3));
    let (events, _) = expert_schedule(16, 6, 2, 2, 16, None).unwrap();
    assert!(matches!(events.last(), Some(ExpertEvent::Copy { .. })));
    assert_eq!(expert_schedule(3, 4, 0, 2, 4, None).unwrap_err().status(), Some(Status::InvalidValue));
}
