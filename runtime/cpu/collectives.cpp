// What the warp collectives compute once all lanes have come.
#include "machine.h"

using namespace luminal;

extern "C" void luminal_run_shuffle(void** requests, unsigned lanes) {
  for (int lane = 0; lane < LANES; lane++) {
    if (!(lanes >> lane & 1)) continue;
    auto* own = static_cast<LuminalShuffle*>(requests[lane]);
    int source = own->source & (LANES - 1);
    if (own->source < 0)
      own->result = own->value;
    else if (lanes >> source & 1)
      own->result = static_cast<LuminalShuffle*>(requests[source])->value;
    else if (worker->launch->checker)
      fault("lane %d shuffles from lane %d, which is not in the mask %08x", lane, source, lanes);
    else
      memset(&own->result, 0x7f, sizeof own->result);  // whatever is there
  }
}

extern "C" void luminal_run_ballot(void** requests, unsigned lanes) {
  unsigned votes = 0;
  for (int lane = 0; lane < LANES; lane++) {
    if (lanes >> lane & 1 && static_cast<LuminalBallot*>(requests[lane])->predicate) votes |= 1u << lane;
  }
  for (int lane = 0; lane < LANES; lane++) {
    if (lanes >> lane & 1) static_cast<LuminalBallot*>(requests[lane])->result = votes;
  }
}
