# How the demo tells its story: headings, commands as they are typed, and checks
# that are counted. Sourced by story.

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
