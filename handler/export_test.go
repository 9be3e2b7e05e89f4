package handler

// Parameters is what a statement names.
func Parameters(text string) ([]string, error) { return parameters(text) }
