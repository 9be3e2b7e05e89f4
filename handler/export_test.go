package handler

// Parameters is what a statement names.
func Parameters(text string) ([]string, error) { return parameters(text) }

// OutcomeOf is what a program comes to that prints this and ends so. 3 is listed
// under rejected, 75 under try_again.
func OutcomeOf(stdout []byte, exit int) Outcome {
	g := &program{rejected: []int{3}, tryAgain: []int{75}}
	out := &output{}
	out.keep(stdout)
	return g.outcome(ending{exit: exit, over: true, out: out, err: &output{}}, Call{Arguments: []byte("{}")})
}
