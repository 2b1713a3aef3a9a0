package plan

// TrainingOf also plans for a rank, and for a trainer that captures nothing; TrainingWorkOf also for a rank.
var (
	TrainingOf     = training
	TrainingWorkOf = trainingWork
)
