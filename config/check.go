package config

import (
	"fmt"
	"reflect"
	"strings"
)

// longestSocket is what fits into a socket address, without the closing NUL.
const longestSocket = 107

// config checks what was decoded, then fills in what follows from it.
func (r *report) config(c *Config) {
	r.ranges(reflect.ValueOf(c).Elem(), "")
	c.derive()
	if c.Lease.Heartbeat >= c.Lease.TTL {
		r.refuse("lease.heartbeat", brief(c.Lease.Heartbeat)+" with ttl "+brief(c.Lease.TTL),
			"less than lease.ttl; without it, a third of lease.ttl", "lease.heartbeat", "lease.ttl")
	}
	r.listen(c)
	r.group("database.application_group", c.Database.ApplicationGroup)
	for i := range c.Principals {
		r.principal(c.Principals, i)
	}
	r.providers(c.Providers)
	r.retry("retry", c.Retry, c.Retry)
	for i := range c.Tools {
		path := fmt.Sprintf("tools[%d]", i)
		r.tool(path, c.Tools[i])
		c.Tools[i] = r.complete(path, c.Tools[i], c)
	}
	r.unique(c.Tools)
	r.across(c)
}

func (r *report) listen(c *Config) {
	if len(c.Listen.Socket) > longestSocket || strings.ContainsRune(c.Listen.Socket, 0) {
		r.refuse("listen.socket", fmt.Sprintf("a path of %d bytes", len(c.Listen.Socket)), fmt.Sprintf("a path of at most %d bytes", longestSocket))
	}
	if c.Listen.SocketMode&0o600 != 0o600 {
		r.refuse("listen.socket_mode", fmt.Sprintf("\"%#o\"", uint32(c.Listen.SocketMode)), `"0600" to "0777", the owner always reading and writing`)
	}
}

func (r *report) principal(all []Principal, i int) {
	p, path := all[i], fmt.Sprintf("principals[%d]", i)
	r.name(path+".name", p.Name)
	if !r.said(path + ".uid") {
		r.refuse(path+".uid", "nothing", "the number of a user, of which this principal's processes are")
	}
	for j, other := range all[:i] {
		if other.Name == p.Name && p.Name != "" {
			r.refuse(path+".name", quote(p.Name)+" a second time", fmt.Sprintf("a name that is not principals[%d]'s", j))
		}
		if other.UID == p.UID && r.said(path+".uid") {
			r.refuse(path+".uid", fmt.Sprintf("%d a second time", p.UID), fmt.Sprintf("one principal for a uid; principals[%d] has it", j),
				path+".uid", fmt.Sprintf("principals[%d].uid", j))
		}
	}
	if len(p.MaySubmit) == 0 {
		r.refuse(path+".may_submit", "nothing", "at least one {tenant, subject}")
	}
	for j, role := range p.Roles {
		r.role(fmt.Sprintf("%s.roles[%d]", path, j), role, p.Roles[:j])
	}
	for j, s := range p.MaySubmit {
		r.scope(fmt.Sprintf("%s.may_submit[%d]", path, j), s)
	}
}

func (r *report) scope(path string, s Scope) {
	r.name(path+".tenant", s.Tenant)
	r.name(path+".subject", s.Subject)
	if s.Tools != nil && len(s.Tools) == 0 {
		r.refuse(path+".tools", "an empty list", "at least one tool; leave it out for all of them")
	}
	for i, tool := range s.Tools {
		r.name(fmt.Sprintf("%s.tools[%d]", path, i), tool)
	}
}

// name checks a name that is compared byte for byte.
func (r *report) name(path, name string) {
	if fault := nameFault(name); fault != "" {
		r.refuse(path, fault, "1 to 255 bytes, without control characters and without white space at the ends")
	}
}

func nameFault(name string) string {
	switch FaultOfName(name) {
	case NameEmpty:
		return "nothing"
	case NameTooLong:
		return fmt.Sprintf("%d bytes", len(name))
	case NameNotUTF8, NameControl:
		return quote(name) + ", with control characters"
	case NameOuterSpace:
		return quote(name) + ", with white space at an end"
	}
	return ""
}
