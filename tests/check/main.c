/* SPDX-License-Identifier: Apache-2.0 */
/* main() of the Check programs that have none: the linker takes it from the library then. */
#include "cases.h"

int main(void)
{
    return cases_run();
}
