package main

import (
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/chaos/point"
)

// breaks are the hidden flags of a process that is made to break.
type breaks struct {
	arm    string // a plan, as point.Parse reads it
	create bool   // a database that is created is marked for it
}

func (b *breaks) declare(c *cobra.Command) {
	b.declareArm(c)
	c.Flags().BoolVar(&b.create, "chaos-create", false, "mark a database that is created as one that may be broken")
	hide(c, "chaos-create")
}

// declareArm is for a command that makes no database.
func (b *breaks) declareArm(c *cobra.Command) {
	c.Flags().StringVar(&b.arm, "chaos-arm", "", "break at `POINT=kill|stop|sleep:DURATION[@N],...`: only a database that was created for it")
	hide(c, "chaos-arm")
}

func hide(c *cobra.Command, flag string) {
	if err := c.Flags().MarkHidden(flag); err != nil {
		panic(err) // the flag is declared by who calls this
	}
}

// plan is what is armed, said loudly: nobody may take such a process for a real one.
func (b *breaks) plan(say func(plan string)) (point.Plan, error) {
	if b.arm == "" {
		return nil, nil
	}
	p, err := point.Parse(b.arm)
	if err != nil {
		return nil, &usageError{"--chaos-arm: " + err.Error()}
	}
	say(p.String())
	return p, nil
}

const armedText = "THIS PROCESS IS ARMED TO BREAK: it is for tests only"
