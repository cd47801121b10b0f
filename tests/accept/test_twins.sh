#!/usr/bin/env bash
# Both twins of every kernel over 1,000 random shapes each.
set -uo pipefail
export PENSTOCK_TWIN_SHAPES=1000
bad=0
for test in "${BUILD:-build}"/tests/{kernel,sampling}/test_twin_*; do
    case $test in *.d) continue ;; esac
    "$test" || bad=1
done
exit $bad
