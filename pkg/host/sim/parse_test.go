package sim_test

import (
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/host/sim"
	"sluice.dev/sluice/pkg/nic"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		spec          string
		pfs, total, n int // VFs of the first PF
		mode          nic.Eswitch
	}{
		{"mlx5", 2, 16, 0, nic.Legacy},
		{"mlx5:cards=1,vfs=16", 2, 16, 0, nic.Legacy},
		{"mlx5:cards=8,ports=1,vfs=128", 8, 128, 0, nic.Legacy},
		{"igb+mlx5:numvfs=4,mode=switchdev", 3, 7, 0, ""},
		{"ice:ports=1,numvfs=4,mode=switchdev,autoprobe=off", 1, 16, 4, nic.Switchdev},
		{"machine:seed=7,udev=off,iommu=off,delay=200ms+mlx5:numvfs=2", 2, 16, 2, nic.Legacy},
		{"mlx5:bound=off", 2, 16, 0, ""},
		{"mlx5:link=infiniband,numvfs=3", 2, 16, 3, ""},
		{"generic:numvfs=2,mode=switchdev", 2, 8, 2, nic.Switchdev},
		{"uses:what=default-route+mlx5+bond:name=b,members=0.0/0.1", 2, 16, 0, nic.Legacy},
		{"fail:write=2,errno=EBUSY,text=busy,after=on+mlx5", 2, 16, 0, nic.Legacy},
	} {
		st := observe(t, parse(t, c.spec))
		if p := st.PFs[0]; len(st.PFs) != c.pfs || p.TotalVFs != c.total || len(p.VFs) != c.n || p.Eswitch != c.mode {
			t.Errorf("%s: %d PFs, the first with %d of %d VFs in mode %q", c.spec, len(st.PFs), len(p.VFs), p.TotalVFs, p.Eswitch)
		}
	}
	if st := observe(t, parse(t, "machine")); len(st.PFs) != 0 {
		t.Errorf("an empty machine has %+v", st)
	}
	st := observe(t, parse(t, "mlx5:mode=switchdev,sfs=4,numsfs=2+bond:name=b,mode=802.3ad,hash=layer34,miimon=50,lacp=fast,ours=on,members=0.1/0.0"))
	if b := st.Bonds[0]; len(st.PFs[0].SFs) != 2 || b.Mode != nic.IEEE8023AD || b.Miimon != 50 || b.LACPRate != "fast" || b.Hash != "layer3+4" || !b.Ours || len(b.Members) != 2 {
		t.Errorf("%+v, %+v", st.PFs[0].SFs, b)
	}
	if st := observe(t, parse(t, "mlx5:numa=3")); st.PFs[0].NUMA != 3 {
		t.Errorf("NUMA node %d: want 3", st.PFs[0].NUMA)
	}
	if st, want := observe(t, parse(t, "random:seed=5")), observe(t, sim.Random(5)); len(st.PFs) != len(want.PFs) {
		t.Errorf("random:seed=5 is another machine than Random(5)")
	}
}

func TestParseRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                                   `machine "": no term "": want mlx5, ice, igb, ixgbe, i40e, generic, bond, uses, machine, random or fail`,
		"bnxt":                               `machine "bnxt": no term "bnxt": want mlx5, ice, igb, ixgbe, i40e, generic, bond, uses, machine, random or fail`,
		"mlx5:":                              `machine "mlx5:": mlx5: "": want KEY=VALUE`,
		"mlx5:cards":                         `machine "mlx5:cards": mlx5: "cards": want KEY=VALUE`,
		"mlx5:cards=":                        `machine "mlx5:cards=": mlx5: "cards=": want KEY=VALUE`,
		"mlx5:cards=9":                       `machine "mlx5:cards=9": mlx5: cards: "9": want a number from 1 to 8`,
		"mlx5:vfs=1000":                      `machine "mlx5:vfs=1000": mlx5: vfs: "1000": want a number from 0 to 128`,
		"igb:vfs=8":                          `machine "igb:vfs=8": igb: vfs: "8": want a number from 0 to 7`,
		"mlx5:vfs=4,vfs=5":                   `machine "mlx5:vfs=4,vfs=5": mlx5: vfs is there twice`,
		"mlx5:vsf=4":                         `machine "mlx5:vsf=4": mlx5: vsf: no such key here`,
		"mlx5:vfs=4,numvfs=5":                `machine "mlx5:vfs=4,numvfs=5": card 0: 5 VFs of 4`,
		"mlx5:mode=sideways":                 `machine "mlx5:mode=sideways": mlx5: mode: "sideways": want legacy or switchdev`,
		"igb:mode=switchdev":                 `machine "igb:mode=switchdev": card 0: igb has no eswitch mode`,
		"mlx5:bound=off,numvfs=2":            `machine "mlx5:bound=off,numvfs=2": card 0: without a driver it has neither VFs nor a mode`,
		"mlx5:autoprobe=yes":                 `machine "mlx5:autoprobe=yes": mlx5: autoprobe: "yes": want on or off`,
		"mlx5:cards=5+mlx5:cards=4":          `machine "mlx5:cards=5+mlx5:cards=4": 9 cards: a machine holds 8 at most`,
		"machine:delay=5":                    `machine "machine:delay=5": machine: delay: "5": want a duration, for example 200ms`,
		"machine:delay=-5s":                  `machine "machine:delay=-5s": machine: delay: "-5s": want a duration, for example 200ms`,
		"machine+machine":                    `machine "machine+machine": machine: it is there twice`,
		"random:seed=1+mlx5":                 `machine "random:seed=1+mlx5": random: it goes with fail terms only`,
		"mlx5+fail:errno=EWHATEVER":          `machine "mlx5+fail:errno=EWHATEVER": fail: errno: "EWHATEVER": want a name like EIO or EBUSY`,
		"@/no/such/machine.json":             "load simulated machine: open /no/such/machine.json: no such file or directory",
		"mlx5:numa=-2":                       `machine "mlx5:numa=-2": mlx5: numa: "-2": want a number from -1 to 1023`,
		"mlx5:link=token-ring":               `machine "mlx5:link=token-ring": mlx5: link: "token-ring": want ethernet or infiniband`,
		"ice:link=infiniband":                `machine "ice:link=infiniband": card 0: ice with InfiniBand ports: want one of mlx5`,
		"mlx5:numsfs=1":                      `machine "mlx5:numsfs=1": card 0: SFs are of switchdev mode`,
		"mlx5:mode=switchdev,sfs=1,numsfs=2": `machine "mlx5:mode=switchdev,sfs=1,numsfs=2": card 0: 2 SFs of 1`,
		"generic:mode=switchdev":             `machine "generic:mode=switchdev": card 0: generic is in switchdev mode only while it has VFs`,
		"mlx5+bond:members=0.0":              `machine "mlx5+bond:members=0.0": bond: name: "": want a name`,
		"mlx5+bond:name=b,members=0":         `machine "mlx5+bond:name=b,members=0": bond: members: "0": want CARD.PORT, for example 0.1`,
		"mlx5+bond:name=b,members=1.0":       `machine "mlx5+bond:name=b,members=1.0": bond "b": no netdev of port 0 of card 1, or one that is in a bond`,
		"mlx5+bond:name=b,mode=round":        `machine "mlx5+bond:name=b,mode=round": bond: mode: "round": want active-backup or balance-xor or 802.3ad`,
		"mlx5+bond:name=lo":                  `machine "mlx5+bond:name=lo": bond "lo": the name is taken`,
		"mlx5+uses:card=3":                   `machine "mlx5+uses:card=3": use of port 0 of card 3, bond "": there is no such netdev`,
		"mlx5+uses:address=1.2.3.4":          `machine "mlx5+uses:address=1.2.3.4": uses: address: "1.2.3.4": want an address with its prefix length, for example 192.0.2.7/24`,
		"machine:lag=soon":                   `machine "machine:lag=soon": machine: lag: "soon": want a duration, for example 200ms`,
		"machine:rdma=both":                  `machine "machine:rdma=both": machine: rdma: "both": want shared or exclusive`,
		"mlx5+":                              `machine "mlx5+": no term "": want mlx5, ice, igb, ixgbe, i40e, generic, bond, uses, machine, random or fail`,
		"mlx5:cards=99999999999999999":       `machine "mlx5:cards=99999999999999999": mlx5: cards: "99999999999999999": want a number from 1 to 8`,
	} {
		if _, err := sim.Parse(spec); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", spec, err, want)
		}
	}
}

func TestParseFault(t *testing.T) {
	s := parse(t, "mlx5+fail:verb=set eswitch mode,errno=EBUSY,text=so there")
	must(t, s.Machine().PCI.SetVFs(t.Context(), pf0, 1))
	err := s.Machine().Devlink.SetEswitch(t.Context(), nic.PCI(pf0), nic.Switchdev)
	if want := "set eswitch mode switchdev of pci/0000:03:00.0: device or resource busy: so there"; err == nil || err.Error() != want {
		t.Errorf("%v: want %s", err, want)
	}
}

// Usage names every term, and its examples work.
func TestUsage(t *testing.T) {
	for _, term := range []string{"mlx5", "ice", "igb", "ixgbe", "i40e", "generic", "bond", "uses", "machine", "random", "fail"} {
		if !strings.Contains(sim.Usage, term) {
			t.Errorf("no word of %s", term)
		}
	}
	_, examples, _ := strings.Cut(sim.Usage, "Examples: ")
	for _, spec := range strings.Fields(examples) {
		parse(t, spec)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"mlx5", "mlx5:cards=2,vfs=16,numvfs=4,mode=switchdev", "igb+ice:ports=1", "random:seed=9",
		"machine:seed=7,udev=off,iommu=off,delay=1ms+mlx5:numvfs=2", "mlx5+fail:write=2,errno=EBUSY,crash=on",
		"mlx5:mode=switchdev,numsfs=2+bond:name=b,mode=802.3ad,members=0.0/0.1+uses:bond=b,what=default-route",
		"mlx5:link=infiniband,numvfs=1+machine:lag=never,rdma=exclusive,rdmaboot=shared,settings=off",
		"generic:numvfs=2,mode=switchdev+uses:port=1,address=2001:db8::1/64",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		if strings.HasPrefix(spec, "@") {
			return // a file of the machine that runs the test: see FuzzDecode
		}
		s, err := sim.Parse(spec)
		if err != nil {
			if spec != "" && !strings.Contains(err.Error(), "machine") {
				t.Errorf("%v: it does not say what of", err)
			}
			return
		}
		use(t, s)
	})
}
