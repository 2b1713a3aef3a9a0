package plan

// TrainingOf also plans for a trainer that captures nothing.
var TrainingOf = training
