package main

import (
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/chaos/point"
)

// breaks are the hidden flags of a process that is made to break.
type breaks struct {
	arm    string // a plan, as point.Parse reads it
	create bool   // a database that is created is marked for it
}

func (b *breaks) declare(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.arm, "chaos-arm", "", "break at `POINT=kill|stop|sleep:DURATION[@N],...`: only a database that was created for it")
	f.BoolVar(&b.create, "chaos-create", false, "mark a database that is created as one that may be broken")
	for _, name := range []string{"chaos-arm", "chaos-create"} {
		if err := f.MarkHidden(name); err != nil {
			panic(err) // the flag is declared above
		}
	}
}

// plan is what is armed, said loudly: nobody may take such a process for a real one.
func (b *breaks) plan(log *zap.Logger) (point.Plan, error) {
	if b.arm == "" {
		return nil, nil
	}
	p, err := point.Parse(b.arm)
	if err != nil {
		return nil, &usageError{"--chaos-arm: " + err.Error()}
	}
	log.Error("THIS PROCESS IS ARMED TO BREAK: it is for tests only", zap.Stringer("plan", p))
	return p, nil
}
