package offload

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/ovsdb"
)

// CheckBridge is nil when Open vSwitch has a bridge of this name, and otherwise
// ErrNoBridge, which names those that are there.
func CheckBridge(ctx context.Context, c *ovsdb.Client, name string) error {
	out, err := c.Transact(ctx, ovsdb.Select(ovsdb.TableBridge, ovsdb.All(), ovsdb.BridgeColumns()...))
	if err != nil {
		return fmt.Errorf("list bridges: %w", err)
	}
	var bridges []ovsdb.Bridge
	if err := out[0].Decode(&bridges); err != nil {
		return fmt.Errorf("list bridges: %w", err)
	}
	_, err = findBridge(name, bridges)
	return err
}
