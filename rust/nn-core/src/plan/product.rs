//! Scratch of products.

use super::scratch::Machine;
use crate::model::Precision;

const SHARED_BYTES: usize = 1 << 25;
const PARTIAL_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 3 << 18;
const STREAM_BYTES: usize = 16 << 20;
const FEW_ROWS: usize = 8;

/// Constants of `cuda/cpu/gemm_job.h` for one instruction set: see there.
#[derive(Clone, Copy)]
struct Tile {
    unit: usize,
    rows: usize,
    columns: usize,
    depth: usize,
    a_lanes: usize,
    group: usize,
    ahead: usize,
    products: usize,
    task_work: usize,
}

impl Tile {
    fn new(values: [usize; 9]) -> Self {
        let [unit, rows, columns, depth, a_lanes, group, ahead, products, task_work] = values;
        Self { unit, rows, columns, depth, a_lanes, group, ahead, products, task_work }
    }

    fn of(machine: &Machine, bf16: bool) -> Self {
        let lanes = machine.lanes();
        if bf16 && machine.isa == "amx" {
            return Self::new([2, 32, 2 * lanes, 256, 32, 8, 1, 512, 1 << 23]);
        }
        if lanes == 16 {
            let unit = if bf16 && machine.isa == "avx512bf16" { 2 } else { 1 };
            return Self::new([unit, 8, 3 * lanes, 768, lanes, 4, 0, 32, 1 << 20]);
        }
        Self::new([1, 6, 2 * lanes, 512, 6, 8, 0, 2 * lanes, 1 << 18])
    }

    /// Units of a block of k, padded, and the blocks.
    fn cut_depth(&self, k: usize) -> (usize, usize) {
        let units = k.div_ceil(self.unit);
        let blocks = units.div_ceil(self.depth);
        if blocks == 0 {
            return (0, 0);
        }
        let each = units.div_ceil(blocks).next_multiple_of(16);
        (each, units.div_ceil(each))
    }
}

/// What matrices of a product share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ragged {
    /// Nothing.
    None,
    /// m rows.
    Rows,
    /// A depth of k.
    Depth,
}

/// c [m, n] of k products an element, for each of `count` matrices, which may share rows or depth; `longest` is the most
/// of k that one can have. `precision` is that of the factors; `wide` when c is f32.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) precision: Precision,
    pub(super) wide: bool,
    pub(super) trans_a: bool,
    pub(super) trans_b: bool,
    pub(super) count: usize,
    pub(super) ragged: Ragged,
    pub(super) longest: usize,
    /// Whether it adds to what is there.
    pub(super) adds: bool,
}

/// How a product is cut: columns and rows of a block, and whether B is packed once for all.
struct Cut {
    columns: usize,
    rows: usize,
    share: bool,
}

impl Product {
    /// Bytes that the product takes.
    pub(super) fn scratch(&self, machine: &Machine) -> Vec<usize> {
        if machine.on_cpu() { self.on_cpu(machine) } else { self.on_gpu() }
    }

    /// A GPU cuts k in pieces of 256 or more, at most 32 of them and 64 MiB; in none when m or k is ragged.
    fn on_gpu(&self) -> Vec<usize> {
        let size = self.count * self.m * self.n;
        let pieces = (self.k / 256).min(32).min((64 << 20) / 4 / size.max(1));
        if self.ragged != Ragged::None || pieces < 2 { Vec::new() } else { vec![4 * pieces * size] }
    }

    fn on_cpu(&self, machine: &Machine) -> Vec<usize> {
        let tile = Tile::of(machine, self.precision == Precision::BF16);
        let row = 4 * self.k.div_ceil(tile.unit).next_multiple_of(machine.lanes());
        if self.ragged == Ragged::None && self.m <= FEW_ROWS {
            return vec![self.count * self.m * row];
        }
        let (mut m, mut k, mut taken) = (self.m, self.k, Vec::new());
        match self.ragged {
            Ragged::None => {}
            Ragged::Depth => k = k.div_ceil(self.count),
            Ragged::Rows => {
                // Groups of few rows go apart: at most all of them have so many.
                taken = vec![8 * self.count, m.min(FEW_ROWS * self.count) * row];
                if m <= FEW_ROWS {
                    return taken;
                }
                taken.push(8 * (self.count + 1));
                m = m.div_ceil(self.count);
            }
        }
        let (units, blocks) = tile.cut_depth(self.k);
        let once = !self.adds && self.m * self.n >= STREAM_BYTES / 4 && blocks <= 2;
        let add = self.wide && !once;
        let cut = self.cut(machine, &tile, m, k, add);
        if cut.share {
            taken.push(4 * units * blocks * self.n.next_multiple_of(tile.columns) * self.count);
        }
        let (longest_units, longest_blocks) = tile.cut_depth(self.longest);
        let depth = longest_units * longest_blocks;
        let one = depth.min(tile.depth) * cut.columns;
        let block = if cut.share { 0 } else { one.max(BLOCK_BYTES / 4).min(depth * cut.columns) };
        let panels = if self.trans_a { tile.group } else { 1 } + tile.ahead;
        let mut step = (4 * block).next_multiple_of(64)
            + (4 * panels * (tile.a_lanes * tile.depth + machine.lanes())).next_multiple_of(64);
        if !add && longest_blocks > 1 {
            let passing = kept_blocks(longest_units, longest_blocks, cut.columns) == longest_blocks;
            let group = if self.trans_a { tile.group * tile.a_lanes } else { tile.rows };
            step += (4 * if passing { group } else { cut.rows } * cut.columns).next_multiple_of(64);
        }
        taken.push(machine.threads * (step.next_multiple_of(4096) + 320));
        taken
    }

    /// The cheapest cut, as `gemm_cut` finds it.
    fn cut(&self, machine: &Machine, tile: &Tile, m: usize, k: usize, add: bool) -> Cut {
        let (threads, count, n) = (machine.threads, self.count, self.n as f64);
        let own = if tile.unit == 1 { Precision::F32 } else { Precision::BF16 };
        let in_place = !self.trans_a && self.precision == own && self.k.is_multiple_of(tile.unit);
        let a_cost = if in_place { 0.2 } else { 1.0 };
        let b_cost = if self.trans_b { 1.0 } else { 0.8 };
        let busy = n.max(tile.products as f64 / 5.0);
        let most = if threads > 1 { 4.0 * threads as f64 } else { 1.0 };
        let wanted = (m as f64 * busy * k as f64 * count as f64 / tile.task_work as f64).min(most);
        let pieces = (wanted as usize).max(1).div_ceil(count);
        let (n_panels, m_panels) = (self.n.div_ceil(tile.columns), m.div_ceil(tile.rows));
        let (each, blocks) = tile.cut_depth(k);
        let deep = if tile.ahead != 0 || each == 0 { tile.depth } else { each };
        let area = (m * self.n) as f64 * tile.unit as f64 / tile.products as f64;
        let units = each * blocks;
        let may_share = self.ragged != Ragged::Depth && units * n_panels * tile.columns * count <= SHARED_BYTES / 4;
        let mut best = None;
        for wide in (1..=(BLOCK_BYTES / 4 / deep / tile.columns).min(n_panels)).rev() {
            let n_blocks = n_panels.div_ceil(wide);
            let passing = blocks == 0 || kept_blocks(each, blocks, wide * tile.columns) == blocks;
            let mut tall = m_panels.div_ceil(pieces.div_ceil(n_blocks));
            if !add && !passing {
                tall = tall.min(PARTIAL_BYTES / 4 / (wide * tile.columns * tile.rows));
            }
            let m_blocks = m_panels.div_ceil(tall.max(1));
            let tasks = n_blocks * m_blocks * count;
            let rows = m_panels.div_ceil(m_blocks) * tile.rows;
            let idle = (tasks.next_multiple_of(threads) - tasks) as f64 * area / tasks as f64;
            let padding = (n_blocks * wide - n_panels) as f64 / (n_blocks * n_panels) as f64 * area;
            let again = if passing || add { 0.0 } else { 0.5 * m as f64 * n / each as f64 };
            let own = (m_blocks * self.n) as f64 * b_cost;
            let shared = n * b_cost + (m_blocks * self.n) as f64 * 0.2 + 16e3 / (units + 1) as f64;
            let share = may_share && shared < own;
            let reading = if share { shared } else { own };
            let cost = (n_blocks * m) as f64 * a_cost + idle + padding + again + reading;
            if best.as_ref().is_none_or(|(least, _)| *least == 0.0 || cost < *least) {
                best = Some((cost, Cut { columns: wide * tile.columns, rows, share }));
            }
        }
        best.map_or(Cut { columns: tile.columns, rows: tile.rows, share: false }, |(_, cut)| cut)
    }
}

/// Blocks of k of so many columns that stay packed at once.
fn kept_blocks(units: usize, blocks: usize, columns: usize) -> usize {
    (BLOCK_BYTES / 4 / (units * columns)).min(blocks).max(1)
}
