package record

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"sluice.dev/sluice/pkg/nic"
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

// RepKey is where the record of an attachment is that has the representor of a VF in a
// pod. The VF itself may be another pod's meanwhile, with a record of its own.
func RepKey(vf string) string { return vf + repSuffix }

const repSuffix = "-rep"

// isKey says whether a record may be called so.
func isKey(s string) bool {
	vf, _ := strings.CutSuffix(s, repSuffix)
	return nic.IsPCIAddress(vf) || nic.IsSFDevice(vf) || IsPairName(s)
}

// Name says in words what the record of a key is of: "VF 0000:03:00.2",
// "SF mlx5_core.sf.4", "the representor of VF 0000:03:00.2", "pair slv1a2b3c4d5e6f".
func Name(key string) string {
	device, ofRep := strings.CutSuffix(key, repSuffix)
	switch {
	case IsPairName(key):
		return "pair " + key
	case ofRep:
		return "the representor of " + Name(device)
	case nic.IsSFDevice(key):
		return "SF " + key
	}
	return "VF " + key
}
