"""What the quick set leaves to the slow one: it seldom changes, or is shown there of one method in place of all."""

# What holds for every method alike is shown of these methods by the slow set alone; their own numbers (transcripts,
# counts, identities) are in the quick set.
SELDOM = {
    "aid-cg", "aid-fp", "amigo", "bome", "bsa", "f2sa", "fsla", "ma-soba", "mrbo-d", "mstsa", "pzobo", "rsvrb", "saba",
    "sema", "soba", "spaba", "srba", "stable", "stocbio", "sustain", "ttsa",
}  # fmt: skip

# The paper's own, shown on both problems by the quick set; all else on the harder one, and by the slow set on both.
ON_BOTH = ("mrbo", "vrbo")
VARIANTS = ("vrbo-per-sample",)  # of a method that is there; it compiles longest of all

# Proofs of several seconds about one room that seldom changes; the quick set has shorter ones of the same rooms.
PROOFS = {
    "test_auto_eta": {
        "test_a_saddle_does_not_make_eta_collapse",
        "test_auto_side_by_side",
        "test_runs_can_be_differentiated",
    },
    "test_benchmark": {
        "test_the_data_have_their_published_sizes",
        "test_the_inner_solution_is_one_of_the_loss_that_methods_see",
    },
    "test_carried": {"test_all_ways_to_run_carry_it_alike"},
    "test_clean": {"test_decisions_by_keyboard_are_exported_and_fed_back"},
    "test_constraints": {"test_and_against_differences_where_the_inner_hessian_is_not_the_identity"},
    "test_convolutions": {"test_a_run_has_the_same_iterates_and_no_convolution"},
    "test_damping": {"test_methods_run_with_it_and_with_prepared_batches"},
    "test_datasets": {"test_cifar10_itself", "test_cifar10_takes_the_training_files_that_are_there", "test_mnist"},
    "test_devices": {"test_on_many_devices"},
    "test_docs": {"test_a_method_of_your_own_runs_as_it_stands", "test_batch_normalisation_runs_as_it_stands"},
    "test_doctor": {"test_the_cache_of_compiled_programs_is_shown_limited_and_emptied"},
    "test_estimators": {"test_nystrom_of_all_columns_solves_the_damped_system", "test_unbiased_on_random_batches"},
    "test_figures": {"test_every_picture_of_a_measurement_is_drawn_again"},
    "test_files": {"test_a_damaged_run_does_not_stop_report_or_run"},
    "test_identities_after": {"test_with_x_held_saba_solves_both_inner_problems"},
    "test_loop": {"test_going_on_with_another_kind_of_eta"},
    "test_matmuls": {"test_it_is_an_ordinary_function"},
    "test_newsgroups": {"test_newsgroups"},
    "test_optimisers": {"test_reverse_differentiates_through_the_optimiser"},
    "test_oracle": {"test_passes_and_blocks_of_sparse_rows"},
    "test_page": {
        "test_charts_are_drawn_when_they_come_near_and_all_for_printing",
        "test_curves_can_be_hidden_and_shown",
        "test_paper_has_no_controls_and_is_white",
        "test_the_axes_follow_the_controls",
        "test_the_page_refers_to_nothing_outside",
    },
    "test_penalties": {
        "test_a_group_shares_one_penalty",
        "test_it_survives_pickle_and_joblib",
        "test_no_direction_is_more_curved_than_one",
    },
    "test_platforms": {"test_every_method_lowers_for_gpus_and_tpus"},
    "test_projections": {"test_projected_methods_reach_the_constrained_minimum"},
    "test_random_losses": {"test_the_key_fits_sums_of_samples_and_fixed_eta"},
    "test_report": {"test_pictures_are_written_and_the_same_every_time"},
    "test_resume": {"test_table1_goes_on", "test_the_identity_of_a_run_is_the_same_in_another_process"},
    "test_sampler": {"test_blocks_are_unbiased"},
    "test_sklearn": {
        "test_a_class_that_is_missing_among_the_trusted_is_said",
        "test_a_mask_trusts_rows_of_the_table",
        "test_how_the_fit_went_is_told",
        "test_no_direction_is_more_curved_than_one",
        "test_tables_of_almost_one_size_share_a_program",
        "test_the_confusion_is_that_of_the_labels",
        "test_without_trusted_rows_some_are_taken_and_it_is_said",
    },
    "test_sources": {
        "test_a_run_goes_on_from_a_folder_and_not_with_other_samples",
        "test_files_that_cannot_be_handed_over_are_read",
        "test_files_that_fit_into_memory_are_handed_over_without_a_copy",
    },
    "test_sparse": {"test_vmap_over_the_matrix_and_over_the_rows"},
    "test_transcript": {"test_transcripts_check_themselves"},
}
