package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/formats"
	"github.com/nncuda/nncuda/go/plan"
	"github.com/nncuda/nncuda/go/train"
)

// job is what is told of ranks that train together.
type job struct {
	plan.Ranks
	times *rankTimes // nil where the device or the link is not known
}

// rankTimes are those of a step on several ranks.
type rankTimes struct{ seconds, efficiency float64 }

func (f *planFlags) checkRanks(given bool) error {
	switch {
	case given && (f.ranks < 1 || f.ranks > 65536):
		return usagef("invalid value for '--ranks': %d is not in the range 1<=x<=65536", f.ranks)
	case given && f.inference:
		return usagef("--ranks is for training, not for --inference")
	case f.growth && !given:
		return usagef("--growth is for --ranks")
	case f.link >= 0 && (!given || deviceOf(f.device.device) == nil):
		return usagef("--link is for --ranks and a GPU by its name")
	case f.link == 0:
		return usagef("--link is 0; it must be at least 1")
	}
	return nil
}

func (f *planFlags) planTraining(found *planned, options train.Config, machine cuda.Machine) (err error) {
	most, err := plan.OnRanks(found.model, options, machine, max(f.ranks, 1), f.experts)
	if err != nil {
		return err
	}
	found.memory, found.work, found.what = most.Memory, most.Work, "a step"
	if found.memory.Held > found.free {
		found.ways, _, err = plan.WaysToFit(found.model, options, machine, most.Seat, found.free, true)
	}
	if f.ranks > 0 && err == nil {
		err = f.planJobs(found, options, machine, most)
	}
	return err
}

// planJobs adds the ranks that are planned for, and with --growth fewer before them.
func (f *planFlags) planJobs(found *planned, options train.Config, machine cuda.Machine, most plan.Ranks) (err error) {
	plans := []plan.Ranks{most}
	if found.growth = f.growth; f.growth {
		if plans, err = plan.Growth(found.model, options, machine, most); err != nil {
			return err
		}
	}
	for _, one := range plans {
		found.jobs = append(found.jobs, job{Ranks: one})
	}
	device := deviceOf(f.device.device)
	if device == nil || f.link <= 0 {
		return nil
	}
	alone := plans[0].Work
	if !f.growth {
		if alone, err = plan.TrainingWork(found.model, options, machine); err != nil {
			return err
		}
	}
	one := alone.Seconds(*device, options.Precision)
	for at, of := range plans {
		together := of.Work.Seconds(*device, options.Precision) + float64(of.Sent)/float64(f.link)
		found.jobs[at].times = &rankTimes{together, one / (float64(of.Seat.Ranks) * together)}
	}
	return nil
}

// addJobs adds them to the plan for programs.
func (p planned) addJobs(object *formats.Object) {
	if len(p.jobs) == 0 {
		return
	}
	rows := make([]any, len(p.jobs))
	for at, of := range p.jobs {
		var seconds, efficiency any
		if of.times != nil {
			seconds, efficiency = of.times.seconds, of.times.efficiency
		}
		rows[at] = formats.NewObject("count", of.Seat.Ranks, "expert_parallel", of.Seat.ExpertParallel, "rank", of.Seat.Rank,
			"held", of.Memory.Held, "sent", of.Sent, "seconds", seconds, "efficiency", efficiency)
	}
	object.Set("ranks", rows[len(rows)-1])
	if p.growth {
		object.Set("growth", rows)
	}
}

// showJobs writes them for people.
func (p planned) showJobs(out io.Writer) error {
	if len(p.jobs) == 0 {
		return nil
	}
	most := p.jobs[len(p.jobs)-1]
	text := fmt.Sprintf("Of %d ranks, rank %d needs the most memory, this. A rank sends up to %s in a step",
		most.Seat.Ranks, most.Seat.Rank, bytesText(most.Sent))
	if most.times != nil {
		text += fmt.Sprintf(", which then takes %.3g s if nothing is computed meanwhile: an efficiency of %.0f %% against one rank",
			most.times.seconds, 100*most.times.efficiency)
	}
	if _, err := fmt.Fprintln(out, text+"."); err != nil || !p.growth {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\nranks\texpert-parallel\tmemory\tsent in a step")
	if most.times != nil {
		fmt.Fprint(table, "\ta step\tefficiency")
	}
	fmt.Fprintln(table)
	for _, of := range p.jobs {
		fmt.Fprintf(table, "%d\t%d\t%s\t%s", of.Seat.Ranks, of.Seat.ExpertParallel, bytesText(of.Memory.Held), bytesText(of.Sent))
		if of.times != nil {
			fmt.Fprintf(table, "\t%.3g s\t%.0f %%", of.times.seconds, 100*of.times.efficiency)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}
