package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/infer"
	"github.com/nncuda/nncuda/go/infer/engine"
)

const contentMetrics = "text/plain; version=0.0.4; charset=utf-8"

// metric is one of api.json.
type metric struct {
	names   []string // its own and its aliases, with the ending of a counter
	kind    string
	about   string
	labels  []string
	buckets []float64

	values map[string]float64 // by the labels' text
	counts []uint64           // of a histogram, a bucket each and one for what is beyond
	sum    float64
}

// metrics counts what the server does, in the text format of Prometheus: the metrics of api.json, each also by its
// aliases. It is an infer.Observer.
// (https://prometheus.io/docs/instrumenting/exposition_formats/)
type metrics struct {
	model string // a label of every series
	mu    sync.Mutex
	order []*metric
	all   map[string]*metric
}

func newMetrics(model string) *metrics {
	made := &metrics{model: model, all: make(map[string]*metric)}
	for _, one := range api.Get("metrics").([]any) {
		entry := one.(*formats.Object)
		name, kind := entry.Get("name").(string), entry.Get("kind").(string)
		found := &metric{kind: kind, about: entry.Get("about").(string), values: make(map[string]float64)}
		end := ""
		if kind == "counter" {
			end = "_total"
		}
		found.names = []string{name + end}
		for _, alias := range entry.Get("aliases").([]any) {
			found.names = append(found.names, alias.(string)+end)
		}
		labels, _ := entry.Get("labels").([]any)
		for _, label := range labels {
			found.labels = append(found.labels, label.(string))
		}
		buckets, _ := entry.Get("buckets").([]any)
		for _, bucket := range buckets {
			found.buckets = append(found.buckets, numberOf(bucket))
		}
		found.counts = make([]uint64, len(found.buckets)+1)
		if len(labels) == 0 {
			found.values[made.labelled(found)] = 0
		}
		made.order, made.all[name] = append(made.order, found), found
	}
	return made
}

// labelled is how the labels of a series are written.
func (m *metrics) labelled(of *metric, values ...string) string {
	text := "model_name=" + labelText(m.model)
	for at, value := range values {
		text += "," + of.labels[at] + "=" + labelText(value)
	}
	return text
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labelText(value string) string { return `"` + labelEscapes.Replace(value) + `"` }

func (m *metrics) add(name string, amount float64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[name]
	one.values[m.labelled(one, labels...)] += amount
}

func (m *metrics) set(name string, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[name]
	one.values[m.labelled(one)] = value
}

func (m *metrics) observe(name string, spent time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, value := m.all[name], spent.Seconds()
	at, _ := slices.BinarySearch(one.buckets, value) // a bucket has what is at most its bound
	one.counts[at]++
	one.sum += value
}

// FirstToken counts the first token of a text.
func (m *metrics) FirstToken(spent time.Duration) {
	m.observe("nncuda_time_to_first_token_seconds", spent)
	m.add("nncuda_generated_tokens", 1)
}

// NextToken counts a later one.
func (m *metrics) NextToken(spent time.Duration) {
	m.observe("nncuda_inter_token_seconds", spent)
	m.add("nncuda_generated_tokens", 1)
}

// Ended counts a text.
func (m *metrics) Ended(finish engine.Finish, spent time.Duration) {
	m.add("nncuda_texts", 1, string(finish))
	m.observe("nncuda_text_seconds", spent)
}

// answered counts a request that got a response, or "none" where the client left. `route` is one of the server's, so that
// strangers make no new series.
func (m *metrics) answered(route, status string) {
	m.add("nncuda_http_requests", 1, route, status)
}

// text gives all of them, as they are now.
func (m *metrics) text(ctx context.Context, service *infer.Service, model *infer.LanguageModel) ([]byte, error) {
	state, err := model.State(ctx)
	if err != nil {
		return nil, err
	}
	running, waiting := service.Counts()
	m.set("nncuda_requests_running", float64(running))
	m.set("nncuda_requests_waiting", float64(waiting))
	m.set("nncuda_cache_usage_ratio", float64(state.UsedPages)/float64(state.CachePages))
	m.set("nncuda_prompt_tokens", float64(state.Statistics.PrefillTokens))
	m.set("nncuda_prefix_queries", float64(state.Statistics.PromptTokens))
	m.set("nncuda_prefix_hits", float64(state.Statistics.SharedTokens))
	m.mu.Lock()
	defer m.mu.Unlock()
	var text []byte
	for _, one := range m.order {
		for _, name := range one.names {
			text = fmt.Appendf(text, "# HELP %s %s\n# TYPE %s %s\n", name, one.about, name, one.kind)
			if one.kind == "histogram" {
				text = one.appendHistogram(text, name, m.labelled(one))
				continue
			}
			for _, labels := range slices.Sorted(maps.Keys(one.values)) {
				text = fmt.Appendf(text, "%s{%s} %s\n", name, labels, number(one.values[labels]))
			}
		}
	}
	return text, nil
}

func (m *metric) appendHistogram(text []byte, name, labels string) []byte {
	count := uint64(0)
	for at, one := range m.counts {
		bound := "+Inf"
		if at < len(m.buckets) {
			bound = number(m.buckets[at])
		}
		count += one
		text = fmt.Appendf(text, "%s_bucket{%s,le=%q} %s\n", name, labels, bound, number(float64(count)))
	}
	return fmt.Appendf(text, "%s_count{%s} %s\n%s_sum{%s} %s\n", name, labels, number(float64(count)), name, labels,
		number(m.sum))
}

// number is one as Prometheus' Python client writes it, so that the names of buckets are the same.
func number(value float64) string { return formats.JSONFloat(value) }
