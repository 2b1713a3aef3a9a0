package report

import (
	"math"
	"slices"
	"strconv"

	"github.com/nncuda/nncuda/go/formats"
)

// How a run of any length becomes a page of bounded size. The three languages follow the same rule to the bit: sums run
// in the order of the records, and what they give is rounded to six significant digits.
const (
	recentSteps = 50      // whose mean is called the loss of the run
	mostPoints  = 300     // of a curve; neighbouring records share one when there are more
	mostColumns = 120     // of the maps of experts' load
	mostCells   = 100_000 // about how many numbers all maps hold together
	mostLayers  = 32      // of which the load is shown, the first ones of a model that has more
	mostRows    = 12      // of the table of numbers
	shareUnit   = 10_000  // shares are written as whole multiples of one over this
)

// point is a number of a record, NaN when it is none.
type point struct {
	step  int64
	value float64
}

// rounded is the nearest number of six significant decimal digits.
func rounded(value float64) float64 {
	near, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'e', 5, 64), 64) // what was just written is a number
	return near
}

func isFinite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

func finite(values []float64) []float64 {
	return slices.DeleteFunc(values, func(value float64) bool { return !isFinite(value) })
}

// thin makes a series of points, steps ascending; nil when no value is a number.
//
// Of n records, point i of m = min(n, 300) stands for the records i·n / m up to (i+1)·n / m: the steps that they come
// "from" and go "to", and the mean, lowest and highest of their finite values. `lows` and `highs`, a value a record, take
// the place of the values for the last two; they may be nil.
func thin(points []point, lows, highs []float64) *formats.Object {
	first, last, count := -1, -1, 0
	for at, one := range points {
		if !isFinite(one.value) {
			continue
		}
		if first < 0 {
			first = at
		}
		last = at
		count++
	}
	if count == 0 {
		return nil
	}
	groups := min(len(points), mostPoints)
	var from, to, means, low, high []any
	for group := range groups {
		begin, end := group*len(points)/groups, (group+1)*len(points)/groups
		values := make([]float64, 0, end-begin)
		for _, one := range points[begin:end] {
			values = append(values, one.value)
		}
		values = finite(values)
		from, to = append(from, points[begin].step), append(to, points[end-1].step)
		lowest, highest := values, values
		if lows != nil {
			lowest, highest = lows[begin:end], highs[begin:end]
		}
		means = append(means, orNil(mean(values), len(values)))
		low = append(low, orNil(least(lowest), len(lowest)))
		high = append(high, orNil(greatest(highest), len(highest)))
	}
	at := func(index int) []any { return []any{points[index].step, rounded(points[index].value)} }
	return formats.NewObject("records", len(points), "finite", count, "first", at(first), "last", at(last),
		"from", from, "to", to, "mean", means, "low", low, "high", high)
}

// recentMean is of the last 50 steps that have a finite value: the first and the last of them, and the mean. The last
// value alone is that of one batch, and tells chance as much as the model.
func recentMean(points []point) any {
	var from, to int64
	var values []float64
	for _, one := range slices.Backward(points) {
		if !isFinite(one.value) {
			continue
		}
		if len(values) == 0 {
			to = one.step
		} else if one.step <= to-recentSteps {
			break
		}
		from, values = one.step, append(values, one.value)
	}
	if len(values) == 0 {
		return nil
	}
	slices.Reverse(values)
	return []any{from, to, rounded(mean(values))}
}

// orNil is a number of `count` values, rounded; nil when there are none.
func orNil(value float64, count int) any {
	if count == 0 || math.IsNaN(value) {
		return nil
	}
	return rounded(value)
}

// The mean in the order of the values, the least and the greatest; NaN when there are none.

func mean(values []float64) float64 {
	total := 0.0
	for _, value := range values {
		total += value
	}
	return total / float64(len(values))
}

func least(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Min(values)
}

func greatest(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values)
}

// chosenRows gives at most 12 of the steps, evenly spaced from the first to the last.
func chosenRows(steps []int64) []int64 {
	count := min(len(steps), mostRows)
	if count < 2 {
		return steps
	}
	gaps := count - 1
	chosen := make([]int64, count)
	for index := range chosen {
		chosen[index] = steps[(2*index*(len(steps)-1)+gaps)/(2*gaps)]
	}
	return chosen
}

// shares are those of choices that experts got at a step, [layer][expert].
type shares struct {
	step   int64
	layers [][]float64
}

// thinExperts makes of experts' shares the spread over the experts, and maps; nil of none.
//
// The spread is the standard deviation of a layer's shares, divided by their mean: a series of the mean over the layers,
// with the lowest and highest layer. The maps have columns of equal numbers of steps: the mean of the records in them,
// and where there are none, the column before.
func thinExperts(records []shares) *formats.Object {
	if len(records) == 0 {
		return nil
	}
	layers, experts := len(records[0].layers), len(records[0].layers[0])
	var points []point
	var lows, highs []float64
	for _, record := range records {
		spreads := make([]float64, layers)
		for layer, row := range record.layers {
			spreads[layer] = loadSpread(row)
		}
		points = append(points, point{record.step, mean(spreads)})
		lows, highs = append(lows, slices.Min(spreads)), append(highs, slices.Max(spreads))
	}
	shown := min(layers, mostLayers)
	first, last := records[0].step, records[len(records)-1].step
	edges, columns := []any{first, last}, []any{}
	if first == last {
		edges = []any{float64(first) - 0.5, float64(last) + 0.5}
		columns = append(columns, column(records[len(records)-1:], shown))
	} else {
		count := int64(min(len(records), mostColumns, max(2, mostCells/(shown*experts))))
		inside := make([][]shares, count)
		for _, record := range records {
			place := min((record.step-first)*count/(last-first), count-1)
			inside[place] = append(inside[place], record)
		}
		for place, some := range inside {
			if len(some) == 0 {
				columns = append(columns, columns[place-1])
			} else {
				columns = append(columns, column(some, shown))
			}
		}
	}
	return formats.NewObject("layers", layers, "experts", experts, "edges", edges,
		"spread", thin(points, lows, highs), "columns", columns)
}

// loadSpread is the coefficient of variation of a layer's load: 0 when all experts get the same.
func loadSpread(row []float64) float64 {
	middle := mean(row)
	if middle == 0 {
		return 0
	}
	squares := 0.0
	for _, share := range row {
		away := share - middle
		squares += float64(away * away) // the conversion keeps product and sum from being fused
	}
	return math.Sqrt(squares/float64(len(row))) / middle
}

// column is the mean of records for the first `shown` layers, in units.
func column(records []shares, shown int) []any {
	rows := make([]any, shown)
	for layer := range rows {
		row := make([]any, len(records[0].layers[layer]))
		for expert := range row {
			total := 0.0
			for _, record := range records {
				total += record.layers[layer][expert]
			}
			row[expert] = int64(math.Floor(float64(total/float64(len(records))*shareUnit) + 0.5))
		}
		rows[layer] = row
	}
	return rows
}
