package record

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// PairName is what the host's end of a pod's pair is called, and where its record is
// instead of a VF's address: it follows from whose it is, so that two never clash.
func PairName(container, ifname string) string {
	sum := sha256.Sum256([]byte(container + "/" + ifname))
	return pairPrefix + hex.EncodeToString(sum[:6])
}

const pairPrefix = "slv"

// IsPairName says whether an interface is called as PairName does.
func IsPairName(name string) bool {
	sum, ok := strings.CutPrefix(name, pairPrefix)
	return ok && len(sum) == 12 && strings.Trim(sum, "0123456789abcdef") == ""
}
