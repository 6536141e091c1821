// The header is also valid C++.
#include <weft.h>

int main() {
    weft_layout_spec_t spec = WEFT_LAYOUT_SPEC_INIT;
    weft_t *weft = weft_connect("/no/such/cluster.toml");
    return weft == nullptr && spec.first == -1 && weft_error()[0] != '\0' ? 0 : 1;
}
