package plan

// TrainingOf also plans for a rank, and for a trainer that captures nothing; TrainingWorkOf also for a rank. TrainerOf is that
// of a rank.
var (
	TrainingOf     = training
	TrainingWorkOf = trainingWork
	TrainerOf      = newTrainer
)

// RunAll runs each micro-batch, also of those that make the same calls, until the function that it gives is called.
func RunAll() func() {
	eachKind = false
	return func() { eachKind = true }
}
