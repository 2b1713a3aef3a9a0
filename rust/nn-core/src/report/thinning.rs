//! How a run of any length becomes a page of bounded size.
//!
//! The three languages follow the same rule to the bit: sums run in the order of the records, and what they give is
//! rounded to six significant digits.

use crate::format::{Table, Value};

/// Steps whose mean is called the loss of the run.
const RECENT_STEPS: i64 = 50;
/// Most points of a curve; neighbouring records share one when there are more.
pub(super) const MOST_POINTS: usize = 300;
/// Most columns of the maps of experts' load, and about how many numbers all maps hold together.
const MOST_COLUMNS: usize = 120;
const MOST_CELLS: usize = 100_000;
/// Layers of which the load is shown, the first ones of a model that has more.
const MOST_LAYERS: usize = 32;
/// Most rows of the table of numbers.
const MOST_ROWS: usize = 12;
/// Shares are written as whole multiples of one over this.
const SHARE_UNIT: f64 = 10_000.0;

/// A number of a record by its step, NaN when it is none.
pub(super) type Point = (i64, f64);

/// The nearest number of six significant decimal digits.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// A number, rounded; null when it is none.
pub(super) fn or_none(value: f64) -> Value {
    if value.is_nan() { Value::None } else { rounded(value).into() }
}

/// A series of points, steps ascending; `None` when no value is a number.
///
/// Of n records, point i of m = min(n, 300) stands for the records i·n / m up to (i+1)·n / m: the steps that they come
/// `from` and go `to`, and the mean, lowest and highest of their finite values. `range`, a lowest and a highest value
/// a record, takes the place of the values for the last two.
pub(super) fn thin(points: &[Point], range: Option<&[(f64, f64)]>) -> Option<Table> {
    let finite: Vec<&Point> = points.iter().filter(|(_, value)| !value.is_nan()).collect();
    let (first, last) = (**finite.first()?, **finite.last()?);
    let groups = points.len().min(MOST_POINTS);
    let mut columns: [Vec<Value>; 5] = Default::default();
    for group in 0..groups {
        let place = group * points.len() / groups..(group + 1) * points.len() / groups;
        let some = &points[place.clone()];
        let values: Vec<f64> = some.iter().map(|(_, value)| *value).filter(|value| !value.is_nan()).collect();
        let (lowest, highest) = match range {
            Some(range) => {
                (range[place.clone()].iter().map(|one| one.0).collect(), range[place].iter().map(|one| one.1).collect())
            }
            None => (values.clone(), values.clone()),
        };
        let entries = [
            some[0].0.into(),
            some[some.len() - 1].0.into(),
            or_none(mean(&values)),
            or_none(least(&lowest)),
            or_none(greatest(&highest)),
        ];
        for (column, entry) in columns.iter_mut().zip(entries) {
            column.push(entry);
        }
    }
    let end = |(step, value): Point| Value::List(vec![step.into(), rounded(value).into()]);
    let mut made = Table::from([
        ("records", points.len().into()),
        ("finite", finite.len().into()),
        ("first", end(first)),
        ("last", end(last)),
    ]);
    for (name, column) in ["from", "to", "mean", "low", "high"].into_iter().zip(columns) {
        made.set(name, column);
    }
    Some(made)
}

/// Of the last 50 steps that have a value, the first and the last of them, and the mean; null when no value is a number.
/// The last value alone is that of one batch, and tells chance as much as the model.
pub(super) fn recent_mean(points: &[Point]) -> Value {
    let finite = || points.iter().filter(|(_, value)| !value.is_nan());
    let Some((last, _)) = finite().next_back() else { return Value::None };
    let recent: Vec<Point> = finite().filter(|(step, _)| *step > last - RECENT_STEPS).copied().collect();
    let values: Vec<f64> = recent.iter().map(|(_, value)| *value).collect();
    Value::List(vec![recent[0].0.into(), (*last).into(), rounded(mean(&values)).into()])
}

/// In the order of the values; NaN when there are none.
fn mean(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |total, value| total + value) / values.len() as f64
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// At most 12 of the steps, evenly spaced from the first to the last.
pub(super) fn chosen_rows(steps: &[i64]) -> Vec<i64> {
    let count = steps.len().min(MOST_ROWS);
    if count < 2 {
        return steps.to_vec();
    }
    let gaps = count - 1;
    (0..count).map(|index| steps[(2 * index * (steps.len() - 1) + gaps) / (2 * gaps)]).collect()
}

/// Shares of choices that experts got at a step, `[layer][expert]`.
pub(super) type Shares = (i64, Vec<Vec<f64>>);

/// Of experts' shares, the spread over the experts, and maps; `None` of none.
///
/// The spread is the standard deviation of a layer's shares, divided by their mean: a series of the mean over the
/// layers, with the lowest and highest layer. The maps have columns of equal numbers of steps: the mean of the records
/// in them, and where there are none, the column before.
pub(super) fn thin_experts(records: &[Shares]) -> Option<Table> {
    let ((first, shares), (last, _)) = (records.first()?, records.last()?);
    let (layers, experts) = (shares.len(), shares[0].len());
    let mut points = Vec::new();
    let mut range = Vec::new();
    for (step, shares) in records {
        let spreads: Vec<f64> = shares.iter().map(|row| load_spread(row)).collect();
        points.push((*step, mean(&spreads)));
        range.push((least(&spreads), greatest(&spreads)));
    }
    let shown = layers.min(MOST_LAYERS);
    let mut columns: Vec<Value> = Vec::new();
    let mut edges: Vec<Value> = vec![(*first).into(), (*last).into()];
    if first == last {
        edges = vec![(*first as f64 - 0.5).into(), (*last as f64 + 0.5).into()];
        columns.push(column(&[&records[records.len() - 1]], shown));
    } else {
        let count = records.len().min(MOST_COLUMNS).min((MOST_CELLS / (shown * experts)).max(2));
        let mut inside: Vec<Vec<&Shares>> = vec![Vec::new(); count];
        for record in records {
            let place = (record.0 - first) * count as i64 / (last - first);
            inside[(place as usize).min(count - 1)].push(record);
        }
        for some in inside {
            let made = match columns.last() {
                Some(before) if some.is_empty() => before.clone(),
                _ => column(&some, shown),
            };
            columns.push(made);
        }
    }
    let mut made = Table::from([("layers", layers.into()), ("experts", experts.into())]);
    made.set("edges", edges);
    made.set("spread", thin(&points, Some(&range)).map_or(Value::None, Value::Table));
    made.set("columns", columns);
    Some(made)
}

/// Coefficient of variation of a layer's load: 0 when all experts get the same.
fn load_spread(row: &[f64]) -> f64 {
    let middle = mean(row);
    if middle == 0.0 {
        return 0.0;
    }
    let squares = row.iter().fold(0.0, |total, share| total + (share - middle) * (share - middle));
    (squares / row.len() as f64).sqrt() / middle
}

/// The mean of records for the first `shown` layers, in units.
fn column(records: &[&Shares], shown: usize) -> Value {
    let share = |layer: usize, expert: usize| {
        let total = records.iter().fold(0.0, |total, (_, shares)| total + shares[layer][expert]);
        (total / records.len() as f64 * SHARE_UNIT + 0.5).floor() as i64
    };
    let experts = records[0].1[0].len();
    let rows = (0..shown).map(|layer| Value::List((0..experts).map(|expert| share(layer, expert).into()).collect()));
    Value::List(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(table: &Table, name: &str) -> String {
        table.get(name).unwrap().to_json().replace(',', ", ")
    }

    #[test]
    fn neighbours_share_a_point() {
        let points: Vec<Point> = (0..2 * MOST_POINTS as i64).map(|step| (step, step as f64)).collect();
        let made = thin(&points, None).unwrap();
        for (name, start) in [("mean", "[0.5, 2.5,"), ("low", "[0.0, 2.0,"), ("high", "[1.0, 3.0,"), ("from", "[0, 2,")]
        {
            assert!(text(&made, name).starts_with(start), "{name}");
        }
        let made = thin(&[(1, f64::NAN), (2, 0.30000004)], None).unwrap();
        assert_eq!(text(&made, "mean"), "[null, 0.3]");
        assert_eq!((text(&made, "finite"), text(&made, "first")), ("1".into(), "[2, 0.3]".into()));
        assert!(thin(&[(1, f64::NAN)], None).is_none());
        assert_eq!(chosen_rows(&Vec::from_iter(0..100)), [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99]);
    }

    #[test]
    fn maps_have_columns_of_equal_numbers_of_steps() {
        let records = [(0, vec![vec![1.0, 0.0]]), (20, vec![vec![0.0, 1.0]]), (30, vec![vec![0.5, 0.5]])];
        let made = thin_experts(&records).unwrap();
        assert_eq!(text(&made, "columns"), "[[[10000, 0]], [[10000, 0]], [[2500, 7500]]]");
        assert_eq!(text(&thin_experts(&records[..1]).unwrap(), "edges"), "[-0.5, 0.5]");
        assert_eq!([load_spread(&[4.0, 0.0, 0.0, 0.0]), load_spread(&[0.0, 0.0])], [3f64.sqrt(), 0.0]);
    }
}
