"""One file per figure, table or study: printed values, record, study, table, figure, findings and `ITEM`."""
