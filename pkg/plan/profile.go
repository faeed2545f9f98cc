package plan

import "sluice.dev/sluice/pkg/nic"

// profile is how a family of drivers wants to be handled where they differ. A
// device without an eswitch never comes to the first two rules.
type profile struct {
	vfDriver string // which the kernel picks for the VFs; "" not known

	// modeBeforeVFs: switchdev is entered first and VFs are made after. Else VFs
	// are made, unbound, and then the mode is set. (Legacy mode is entered before
	// VFs are made with every driver.)
	modeBeforeVFs bool

	// modeWithoutVFs: the driver refuses to change the mode while there are VFs.
	modeWithoutVFs bool

	// dropsMode: with its last VF the device falls back to legacy mode.
	dropsMode bool

	// rowFollowsVF: the administrative address that the PF reports is also
	// changed by the VF's own driver, so a bound VF never reports "none", and to
	// clear it is in vain; and a VF that was given one may not choose another for
	// its netdev (unless it is trusted, on which no plan relies).
	rowFollowsVF bool

	// newChannels: a change of the mode gives the uplink another number of channels.
	newChannels bool

	// rates: VFs have rates in switchdev mode too.
	rates bool

	// tellsLAG: the driver says whether hardware aggregates (nic.PF.LAG).
	tellsLAG bool
}

// profileOf is the whole of what sluice knows of drivers' orders: a table by the
// name of the PF's driver. docs/drivers.md is the same table in prose, and a test
// compares them. The sources are those of Linux 6.12, looked up in 7.2 as well.
func profileOf(pf nic.PF) profile {
	switch pf.Driver {
	case "mlx5_core":
		// Switchdev is entered before VFs are made: the driver takes either order,
		// and firmware of some cards refuses the mode while VFs exist (reported of
		// ConnectX-6 Lx, 26.42: "Failed setting eswitch to offloads"). VFs that are
		// there stay, unbound, as the vendor's manual asks (OVS-Kernel Hardware
		// Offloads, "make sure that all VFs are unbound"): their vports are torn
		// down under a live driver (mlx5/core/eswitch.c,
		// mlx5_eswitch_disable_locked). The VFs' addresses outlive a mode change
		// (clear_vf is false then), not a change of the count
		// (mlx5_eswitch_clear_vf_vports_info). mlx5_eswitch_get_vport_config
		// reports what was set by the PF alone. lag/debugfs.c tells of VF-LAG. The
		// uplink as a representor has parameters of its own (en_rep.c,
		// MLX5E_REP_PARAMS_DEF_NUM_CHANNELS), and rates are esw/qos.c's in both modes.
		return profile{vfDriver: "mlx5_core", modeBeforeVFs: true, newChannels: true, rates: true, tellsLAG: true}
	case "ice":
		// "Changing eswitch mode is allowed only if there is no VFs created"
		// (intel/ice/ice_eswitch.c, ice_eswitch_mode_set). ice_get_vf_cfg reports
		// hw_lan_addr, which virtchnl changes too unless the PF has set it
		// (ice_can_vf_change_mac).
		return profile{vfDriver: "iavf", modeBeforeVFs: true, modeWithoutVFs: true, rowFollowsVF: true}
	case "igb":
		// No eswitch to set. igb_ndo_get_vf_config reports vf_mac_addresses, which
		// igb_set_vf_mac_addr changes for the VF unless IGB_VF_FLAG_PF_SET_MAC.
		return profile{vfDriver: "igbvf", rowFollowsVF: true}
	case "ixgbe":
		return profile{vfDriver: "ixgbevf", rowFollowsVF: true} // as igb: ixgbe_set_vf_mac_addr
	case "i40e":
		return profile{vfDriver: "iavf", rowFollowsVF: true} // as ice: i40e_vc_add_mac_addr_msg
	}
	// VFs first: older drivers refuse switchdev without VFs (broadcom/bnxt/
	// bnxt_vfr.c of 6.1, no more in 6.12: "Enable VFs before setting switchdev
	// mode"), and some leave it with the last one (netdevsim/dev.c,
	// nsim_drv_configure_vfs).
	return profile{dropsMode: true}
}
