#!/bin/sh
# Runs the CUDA compiler given as arguments, and puts what ptxas says about each kernel (registers, shared memory, stack,
# spills) and the seconds it took into a file beside the object, for cmake/ptxas_report.py. Everything else is printed.
# Colours and -v of the compiler itself are left alone.
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
begin=$(date +%s)
"$@" 2>"$notes.all"
status=$?
end=$(date +%s)
about='^ptxas info|^ +[0-9]+ bytes stack frame|^[0-9]+ bytes (stack|gmem)'
grep -Ev "$about" "$notes.all" >&2
{
  echo "seconds $((end - begin))"
  grep -E "$about" "$notes.all"
} >"$notes"
rm -f "$notes.all"
[ $status = 0 ] || rm -f "$notes"
exit $status
