package capability

// Answer is whether something can be.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Finding is one condition: whether it holds, what was found, where, and what to
// change for it to hold.
type Finding struct {
	Answer Answer `json:"answer"`
	What   string `json:"what"`
	From   string `json:"from,omitempty"`
	Change string `json:"change,omitempty"` // "" for a yes, and where another capability says it
}

func (f Finding) String() string {
	if f.From == "" {
		return f.What
	}
	return f.What + " (" + f.From + ")"
}

// Capability is one thing that a node may be able to do.
type Capability struct {
	Name     string    `json:"name"`
	Means    string    `json:"means"`
	Answer   Answer    `json:"answer"`
	Findings []Finding `json:"findings"`
}

// Report is all of them, in an order in which each comes after those that it needs.
type Report struct {
	Facts        Facts        `json:"facts"`
	Capabilities []Capability `json:"capabilities"`
}

// Get returns the capability of that name, or nil.
func (r Report) Get(name string) *Capability {
	for i := range r.Capabilities {
		if r.Capabilities[i].Name == name {
			return &r.Capabilities[i]
		}
	}
	return nil
}

// answer is yes when all are, no when one is no.
func answer(findings []Finding) Answer {
	out := Yes
	for _, f := range findings {
		switch f.Answer {
		case No:
			return No
		case Unknown:
			out = Unknown
		}
	}
	return out
}

// Missing are the findings that are not yes, the noes first: what to change.
func (c Capability) Missing() []Finding {
	var no, unknown []Finding
	for _, f := range c.Findings {
		switch f.Answer {
		case No:
			no = append(no, f)
		case Unknown:
			unknown = append(unknown, f)
		}
	}
	return append(no, unknown...)
}
