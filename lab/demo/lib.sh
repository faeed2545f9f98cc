# How the demo and the scenarios tell their story: headings, commands as they are
# typed, checks that are counted, the stand-in for the kubelet. Sourced.

if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
	bold='' dim='' green='' red='' plain=''
fi
passed=0 failed=0 chapter=0

# tell HEADING TEXT...: the next chapter.
tell() {
	chapter=$((chapter + 1))
	printf '\n%s%d  %s%s\n' "$bold" "$chapter" "$1" "$plain"
	shift
	[ $# -eq 0 ] || printf '%s%s%s\n' "$dim" "$*" "$plain"
}

# show COMMAND...: the command as it is typed, and what it says.
show() {
	local line="$*"
	printf '\n%s$ %s%s\n' "$bold" "${line#done_steps }" "$plain"
	"$@"
}

# done_steps COMMAND...: in a pipe a run says when a step begins and when it is
# done; for reading, the second is enough.
done_steps() {
	if [ -t 1 ]; then "$@"; else "$@" | sed '/^  \.\. /d'; fi
}

# check TEXT COMMAND...: counted; the command's output is shown if it fails.
check() {
	local text=$1 out
	shift
	if out=$("$@" 2>&1); then
		passed=$((passed + 1))
		printf '%s  ok    %s%s\n' "$green" "$text" "$plain"
	else
		failed=$((failed + 1))
		printf '%s  FAIL  %s%s\n' "$red" "$text" "$plain"
		printf '        %s\n' "$*" "$out"
	fi
}

# equal WANT GOT
equal() { [ "$1" = "$2" ] || { echo "want $1, got $2"; return 1; }; }

# eventually COMMAND...: within a minute; a busy machine is slow.
eventually() {
	local end=$((SECONDS + 60))
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || { "$@"; return; }
		sleep 0.1
	done
}

# tally [NAME]: the end, with the checks counted.
tally() {
	printf '\n%s: %d passed, %d failed\n' "${1-${0##*/}}" "$passed" "$failed"
	[ "$failed" = 0 ]
	exit
}

clean_log() { ! dmesg | grep -E 'WARNING:|BUG:|Oops|Call Trace'; }

# finish [NAME]: the end in a guest.
finish() {
	check "the kernel has nothing to complain of" clean_log
	tally "$@"
}

# kubelet_starts: the stand-in for the kubelet, with its folder in $work/kubelet. What
# is echoed to descriptor 9 is a command to it. kubelet_ends ends it.
kubelet_starts() {
	mkdir "$work/kubelet"
	mkfifo "$work/commands"
	kubelet -dir "$work/kubelet" <"$work/commands" >"$work/kubelet.log" &
	kubelet=$!
	exec 9>"$work/commands"
	eventually test -S "$work/kubelet/kubelet.sock"
}
kubelet_ends() {
	exec 9>&-
	kill "$kubelet" && wait "$kubelet" 2>/dev/null
}

# in_kubelet FILTER: the last line of the kubelet that jq's filter takes.
in_kubelet() { jq -c "select($1)" "$work/kubelet.log" | tail -n 1; }

# healthy N: the kubelet was last told of so many. allocated: it has been given some.
healthy() { [ "$(in_kubelet '.event == "devices"' | jq '[.devices[] | select(.health == "Healthy")] | length')" = "$1" ]; }
allocated() { in_kubelet '.event == "allocated"' | grep -q .; }
