package host

import (
	"context"
	"errors"
	"io/fs"
	"slices"
)

// uses lists what runs over interfaces, the ways to the addresses in m.Keep among
// it. An address to which there is no way now cannot lose it.
func uses(ctx context.Context, m Machine) ([]Use, error) {
	out, err := m.Links.Uses(ctx)
	if err != nil {
		return nil, err
	}
	out = slices.Clone(out)
	for _, a := range m.Keep {
		switch ifindex, err := m.Links.RouteTo(ctx, a); {
		case err == nil:
			out = append(out, Use{ifindex, "the route to " + a.String()})
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}
