# Shared by the scripts under lab/; sourced, never run.
# shellcheck shell=bash

lab=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(dirname "$lab")
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}

say() { echo "lab: $*" >&2; }
die() {
	say "$@"
	exit 125
}

need_root() {
	[ "$(id -u)" = 0 ] || die "$(basename "$0") must run as root (it makes file systems and guests)"
}

# digest TEXT FILE...: one short name for a text and the content of the files.
digest() {
	local text=$1
	shift
	{ echo "$text" && cat -- "$@"; } </dev/null | sha256sum | cut -c1-16
}

# cached KIND KEY WHAT BUILDER...: prints the cache entry's path. On a miss it
# runs BUILDER... with a scratch folder as last argument and renames that folder
# into place, so an entry is either whole or absent. A lock per kind makes a
# second builder wait for the first and then take its result.
cached() {
	local kind=$1 key=$2 what=$3 entry scratch lock status
	shift 3
	entry=$cache/$kind-$key
	(umask 077 && mkdir -p "$cache")
	if [ ! -d "$entry" ]; then
		exec {lock}>"$cache/$kind.lock"
		flock -n "$lock" || { say "$kind: another build is under way, waiting for it"; flock "$lock"; }
		if [ ! -d "$entry" ]; then
			say "$kind: building ($what)"
			scratch=$(mktemp -d "$cache/tmp.$kind.XXXXXX")
			chmod 755 "$scratch"
			# Not as a condition: there set -e would sleep in the builder too.
			set +e
			(
				set -euo pipefail
				"$@" "$scratch"
			) >"$scratch.log" 2>&1
			status=$?
			set -e
			if [ "$status" != 0 ]; then
				tail -n 30 "$scratch.log" >&2
				rm -rf --one-file-system "$scratch"
				die "$kind: build failed; whole log: $scratch.log"
			fi
			mv "$scratch.log" "$scratch/build.log"
			mv -T "$scratch" "$entry"
			say "$kind: built"
		fi
		exec {lock}>&-
	else
		[ -n "${LAB_NESTED-}" ] || say "$kind: cached"
	fi
	touch "$entry" # lab/prune drops what was not used for longest
	echo "$entry"
}

# mirror: the Debian mirror that the host's own apt uses. Never written down in
# the tree: it differs from machine to machine.
mirror() {
	local name uri try
	name=$(. /etc/os-release && echo "$VERSION_CODENAME")
	for try in 1 2; do
		uri=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $name" | sed -n 1p)
		[ -z "$uri" ] || break
		# A fresh machine has no lists yet, and so no code names.
		[ "$try" = 2 ] || apt-get update >&2
	done
	[ -n "$uri" ] || die "the host's apt sources name no Debian mirror for $name"
	echo "$uri"
}

# host_package COMMAND PACKAGE: installs PACKAGE if the host lacks COMMAND.
host_package() {
	command -v "$1" >/dev/null && return
	say "installing $2 on this machine (for $1)"
	{ apt-get update && apt-get install -y --no-install-recommends "$2"; } >&2
}

# in_root ROOT COMMAND...: runs COMMAND in the root file system with /proc (which
# objtool needs), /dev and the cache visible. Everything is mounted in a mount
# namespace of its own and so goes when the command does, however it ends.
in_root() {
	local root=$1
	shift
	unshare --mount --propagation private --pid --fork --kill-child --mount-proc="$root/proc" \
		bash -euc '
			root=$1 cache=$2 tree=$3
			shift 3
			mount --rbind /dev "$root/dev"
			mount -t tmpfs none "$root/tmp"
			mount -t tmpfs none "$root/mnt"
			mkdir "$root/mnt/cache" "$root/mnt/tree"
			mount --bind "$cache" "$root/mnt/cache"
			mount --bind "$tree" "$root/mnt/tree"
			exec chroot "$root" "$@"' in_root "$root" "$cache" "$tree" "$@"
}
