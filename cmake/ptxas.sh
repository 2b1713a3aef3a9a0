#!/bin/sh
# Runs the CUDA compiler given as arguments. What ptxas says about each kernel (registers, shared memory, stack, spills),
# and how many seconds of a processor the compiler took, goes into a file beside the object, for cmake/ptxas_report.py.
# Everything else is printed.
object=
previous=
for word in "$@"; do
  [ "$previous" = -o ] && object=$word
  previous=$word
done
case $object in
*.o) ;;
*) exec "$@" ;; # not a compilation
esac

notes=$object.ptxas
"$@" 2>"$notes.all"
status=$?
about='^ptxas info|^ +[0-9]+ bytes stack frame|^[0-9]+ bytes (stack|gmem)'
grep -Ev "$about" "$notes.all" >&2
times >"$notes.times"
{
  awk 'NR == 2 { split($1 "m" $2, t, /[ms]+/); printf "seconds %.0f\n", 60 * (t[1] + t[3]) + t[2] + t[4] }' "$notes.times"
  grep -E "$about" "$notes.all"
} >"$notes"
rm -f "$notes.all" "$notes.times"
[ $status = 0 ] || rm -f "$notes"
exit $status
